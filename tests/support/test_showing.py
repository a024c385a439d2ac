import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import undertow
from undertow import Trajectory, make, simulate
from undertow.errors import InvalidInputError
from undertow.live import registry
from undertow.policies import StructuralKalman
from undertow.replay import Diagnosis, LogReplay, Replay, Table, diagnose, parse_policies, read_table, replay_log
from undertow.replay import replay_table as play
from undertow.replay.diagnosis_text import answer, describe
from undertow.simulation import Run
from undertow.support.display import html_table, progress_line
from undertow.support.drawing import panels

HOSTILE = "<script>alert(1)</script>&"
ROUNDS = 120


class Balanced(HTMLParser):
    """Fails where a tag is not closed, or is none of a table's."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("table", "caption", "thead", "tr", "th", "td", "p"), tag
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(page: str) -> str:
    parser = Balanced()
    parser.feed(page)
    assert not parser.open
    assert "<script" not in page
    assert len(page) < 20_000
    assert "array(" not in page
    return page


@pytest.fixture(scope="module")
def paths() -> Trajectory:
    return undertow.paper_system(psi=1).sample(ROUNDS, rng=0, runs=3)


@pytest.fixture(scope="module")
def run(paths: Trajectory) -> Run:
    return simulate(make("linucb", arms=2, context_dim=1), paths, record=["forecasts", "errors"])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    file = tmp_path_factory.mktemp("table") / "data.csv"
    rewards = np.random.default_rng(0).normal(size=(ROUNDS, 2))
    pl.DataFrame({HOSTILE: rewards[:, 0], "b$x$": rewards[:, 1], "hot": np.ones(ROUNDS)}).write_csv(file)
    return read_table(file, rewards=[HOSTILE, "b$x$"], contexts=["hot"])


@pytest.fixture(scope="module")
def replay(table: Table) -> Replay:
    return play(table, parse_policies("linucb, random"), runs=1, resamples=50)


@pytest.fixture(scope="module")
def found(table: Table) -> Diagnosis:
    return diagnose(table)


@pytest.fixture(scope="module")
def log_replay(tmp_path_factory: pytest.TempPathFactory) -> LogReplay:
    file, rng = tmp_path_factory.mktemp("log") / "log.csv", np.random.default_rng(0)
    arms = rng.integers(2, size=ROUNDS)
    columns = {"arm": [HOSTILE if arm else "b" for arm in arms], "reward": rng.normal(size=ROUNDS)}
    pl.DataFrame(columns | {"propensity": np.full(ROUNDS, 0.5)}).write_csv(file)
    return replay_log(read_table(file), parse_policies("ucb"), runs=1, resamples=50)


def test_tables_are_escaped_and_short() -> None:
    page = checked(html_table(HOSTILE, [(HOSTILE, i) for i in range(100)], [HOSTILE], note=HOSTILE))
    assert page.count("<tr>") == 21
    assert "… and 80 more" in page
    assert "more" not in html_table("t", [("a", 1)] * 20)


def test_a_decision_shows_its_arms() -> None:
    page = checked(make("ucb", arms=[HOSTILE, "b"]).decide()._repr_html_())
    assert "&lt;script&gt;" in page
    assert "∞" in page
    assert page.count("← chosen") == 1
    learner = StructuralKalman(arms=2, rng=0)
    assert "state error" in checked(learner.decide()._repr_html_())
    assert "structural levels" in checked(learner.health()._repr_html_())
    simple = make("ucb", arms=2).health()
    assert str(simple) in checked(simple._repr_html_())  # without a model there is still something to say


def test_results_show_themselves(
    paths: Trajectory, run: Run, table: Table, replay: Replay, log_replay: LogReplay, found: Diagnosis
) -> None:
    assert "3 runs of 120 rounds" in checked(paths._repr_html_())
    assert "Trajectory: 120 rounds" in checked(paths.run(0)._repr_html_())
    page = checked(run._repr_html_())
    assert run.regret is not None
    assert f"Regret {run.regret[:, -1].mean():.4g} on average" in page
    assert "a table of 120 rounds" in checked(table._repr_html_())
    page = checked(replay._repr_html_())
    assert "LinUCB" in page
    assert "clairvoyant" in page
    assert "doubly robust" in checked(log_replay._repr_html_())
    assert "a log of 120 rounds" in checked(log_replay.table._repr_html_())
    page = checked(found._repr_html_())
    assert "What to do" in page
    assert "…" not in page  # whole sentences


def test_the_registry_lists_every_policy() -> None:
    entries = registry()
    page = checked(entries._repr_html_())
    assert "autopilot" in page
    assert len(re.findall("<tr>", page)) == min(len(entries), 20) + 1
    assert "window, feature_dim, reward_lags, ridg…</td>" in page  # of LinUCB: what tells it from others
    assert "Most also take arms, explore, minimize" in page


def test_what_is_printed_tells_shapes_alone(
    paths: Trajectory, run: Run, table: Table, replay: Replay, log_replay: LogReplay
) -> None:
    assert repr(paths) == (
        f"Trajectory(contexts=<ndarray (3, {ROUNDS}, 1)>, rewards=<ndarray (3, {ROUNDS}, 2)>, "
        f"means=<ndarray (3, {ROUNDS}, 2)>, features=<ndarray (3, {ROUNDS}, 0)>)"
    )
    for result in (run, table, replay, log_replay, log_replay.table):
        assert len(repr(result)) < 1000
        assert "None" not in repr(result).split("columns=")[0]


def test_missing_contexts_and_unknown_means_are_told() -> None:
    page = Trajectory([[1.0], [np.nan]], [[1.0, 2.0], [3.0, 4.0]])._repr_html_()
    assert "means are not known; 50.0% of the contexts are missing" in page


def test_a_diagnosis_prints_as_plain_words(found: Diagnosis) -> None:
    told = str(found)
    assert told.startswith(answer(found))
    for title, words in describe(found):
        assert f"{title}. {words}" in told
    assert repr(found).startswith("Diagnosis(verdict=")


def test_data_frames(
    paths: Trajectory, run: Run, table: Table, replay: Replay, log_replay: LogReplay, found: Diagnosis
) -> None:
    frame = run.to_polars()
    assert frame.columns == ["run", "round", "arm", "reward", "regret", "error", "forecast_0", "forecast_1"]
    second = frame.filter(pl.col("run") == 1)
    assert second["reward"].to_list() == run.rewards[1].tolist()
    assert second["round"].to_list() == list(range(ROUNDS))
    assert second["forecast_1"].to_numpy() == pytest.approx(run.forecasts[1, :, 1])  # type: ignore[index]
    assert run.to_pandas()["regret"].to_list() == frame["regret"].to_list()
    one = paths.run(2).to_polars()
    assert one.columns == ["round", "context_0", "reward_0", "reward_1", "mean_0", "mean_1"]
    assert one["mean_1"].to_list() == paths.means[2, :, 1].tolist()  # type: ignore[index]
    assert table.to_polars().columns == ["hot", f"reward_{HOSTILE}", "reward_b$x$"]
    assert table.to_pandas().shape == (ROUNDS, 3)
    assert replay.to_polars().equals(replay.summary)
    assert list(replay.to_pandas().columns) == replay.summary.columns
    logged = log_replay.table.to_polars()
    assert set(logged["arm"]) == {HOSTILE, "b"}
    assert log_replay.to_polars().equals(log_replay.summary)


def test_figures(run: Run, paths: Trajectory, replay: Replay, log_replay: LogReplay, found: Diagnosis) -> None:
    bare = simulate(make("random", arms=2, rng=0), Trajectory(rewards=paths.rewards[0]))
    for drawn, axes in ((run, 3), (bare, 2), (replay, 1), (log_replay, 1), (found, 3)):
        sheet = drawn.plot()
        assert len(sheet.axes) == axes
        assert sheet._repr_png_().startswith(b"\x89PNG")
    assert run.plot().axes[0].get_ylabel() == "regret"
    assert bare.plot().axes[0].get_ylabel() == "mean reward so far"


def test_a_policy_draws_its_forecasts_and_stays_as_it_is(tmp_path: Path) -> None:
    policy = make("linucb", arms=["$a", "b"], feature_dim=1)
    policy.learn(policy.decide([1.0]), 1.0)
    with pytest.raises(InvalidInputError, match="features"):
        policy.plot()
    assert len(policy.plot([1.0]).axes) == 1
    policy.plot([1.0]).savefig(tmp_path / "a.png")
    learner = make("structural-kalman", arms=3, rng=0, minimize=True)
    for t in range(30):
        learner.learn(learner.decide(), float(t))
    before = learner.forecast()
    forecasts, rewards = learner.plot().axes
    assert forecasts.get_title(loc="left") == "round 30"
    shown = np.asarray(rewards.collections[0].get_offsets())
    assert sorted(shown[:, 1]) == [float(t) for t in range(30)]
    assert np.array_equal(before.forecast, learner.forecast().forecast)
    assert learner.round == 30


def test_a_log_axis_shows_powers_and_a_dollar_is_a_dollar() -> None:
    sheet, axis = panels(2.0)
    axis.set(yscale="log", ylim=(1, 1e6), title="$5 and $6")
    sheet.savefig(io.BytesIO())
    assert not axis.title.get_parse_math()
    powers = [label for label in axis.get_yticklabels() if "10" in label.get_text()]
    assert powers
    assert all(label.get_parse_math() for label in powers)


def test_figures_name_the_extra_that_they_need(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "undertow.support.drawing")
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(ModuleNotFoundError, match=r"plot needs matplotlib\S*; pip install 'undertow\[plot\]'"):
        run.plot()


def test_progress_of_a_simulation(paths: Trajectory, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int]] = []
    policy = make("linucb", arms=2, context_dim=1)
    again = simulate(policy, paths, progress=lambda done, total: told.append((done, total)))
    assert np.array_equal(again.arms, run.arms)
    assert told == [(0, 360), (120, 360), (240, 360), (360, 360)]
    simulate(policy, paths, progress=True)
    assert capsys.readouterr().err.endswith("simulate: 100 %                \n")
    simulate(policy, paths)
    assert capsys.readouterr().err == ""
    with pytest.raises(InvalidInputError, match="progress: expected True, False or a function, got 3"):
        simulate(policy, paths, progress=3)  # type: ignore[arg-type]


def test_a_line_of_progress_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.01, 10.0, 20.0])
    monkeypatch.setattr("undertow.support.display.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    show = progress_line("work")
    for done in (0, 50, 100):
        show(done, 100)
    shown = [line.strip() for line in re.split(r"[\r\n]", stream.getvalue())]
    assert [line for line in shown if line] == ["work: 50 %, 10 s left", "work: 100 %"]
