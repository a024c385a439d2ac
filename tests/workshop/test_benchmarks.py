import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks import environments, headline, quality, report, tune, tuner, versus
from benchmarks.peers import play as player
from benchmarks.peers.protocol import Inputs, TooSlowError
from benchmarks.problems import SHORT, TEST_SEED, TUNING_SEED, TUNING_SYSTEMS, Problem
from undertow import Trajectory, random_system, simulate
from undertow.policies import LinUCB

ROOT = Path(__file__).parents[2]
Array = npt.NDArray[np.float64]
PEERS = sorted(environments.PINS)


class Ridge:
    """LinUCB in a few lines of NumPy: a library that is always installed."""

    def __init__(self, arms: int, inputs: int, exploration: float) -> None:
        self.V, self.b = np.stack([np.eye(inputs)] * arms), np.zeros((arms, inputs))
        self.exploration = exploration

    def choose(self, inputs: Array) -> int:
        inverse = np.linalg.inv(self.V)
        widths = np.sqrt(np.einsum("i,aij,j->a", inputs, inverse, inputs))
        return int(np.argmax(np.einsum("aij,aj,i->a", inverse, self.b, inputs) + self.exploration * widths))

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        self.V[arm] += np.outer(inputs, inputs)
        self.b[arm] += reward * inputs


def start(arms: int, inputs: int, seed: int, parameters: dict[str, Any]) -> Ridge:
    return Ridge(arms, inputs, **parameters)


def refuse(arms: int, inputs: int, seed: int, parameters: dict[str, Any]) -> Ridge:
    raise TooSlowError(f"{arms} arms\nof {inputs} inputs")


@pytest.fixture
def path() -> Trajectory:
    sampled = random_system(3, 2, 3, rng=0).sample(200, rng=0)
    features = np.random.default_rng(0).normal(size=(200, 2))
    return Trajectory(sampled.contexts, sampled.rewards, means=sampled.means, features=features)


@pytest.mark.parametrize("window", [0, 1, 4])
@pytest.mark.parametrize("lags", [0, 1, 3])
def test_inputs_are_the_past_newest_first(path: Trajectory, window: int, lags: int) -> None:
    inputs = Inputs(path.contexts, path.features, 3, window=window, lags=lags)
    arms = np.random.default_rng(1).integers(0, 3, 12)
    for t, arm in enumerate(arms):
        expected = [1.0]
        for lag in range(1, window + 1):
            expected += path.contexts[t - lag].tolist() if lag <= t else [0.0, 0.0]
        expected += path.features[t].tolist()
        for lag in range(1, lags + 1):
            for a in range(3):
                here = lag <= t and arms[t - lag] == a
                expected += [float(path.rewards[t - lag, a]), 1.0] if here else [0.0, 0.0]
        assert inputs.row(t).tolist() == expected
        assert inputs.size == len(expected)
        inputs.note(int(arm), float(path.rewards[t, arm]))


@pytest.mark.parametrize("lags", [0, 5])
def test_a_peer_given_our_inputs_plays_what_our_ridge_plays(path: Trajectory, tmp_path: Path, lags: int) -> None:
    file = Problem("any", "path", path, None).store(tmp_path)
    adapter: Any = SimpleNamespace(CANDIDATES=[], start=start)
    played = player.play(adapter, player.Job(str(file), "", {"exploration": 0.7}, 0, window=4, lags=lags))
    ours = LinUCB(arms=3, context_dim=2, feature_dim=2, window=4, reward_lags=lags, exploration=0.7)
    assert played.arms.tolist() == simulate(ours, path).arms.tolist()
    assert played.nanoseconds.shape == (200,)
    assert (played.nanoseconds > 0).all()


def test_stored_paths_do_not_tell_the_means(path: Trajectory, tmp_path: Path) -> None:
    with np.load(Problem("any", "path", path, None).store(tmp_path)) as stored:
        assert sorted(stored) == ["contexts", "features", "rewards"]


def test_jobs_are_served_and_failures_told(
    path: Trajectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(Problem("any", "path", path, None).store(tmp_path))
    out = tmp_path / "played.npz"
    jobs = tmp_path / "jobs.json"
    jobs.write_text(json.dumps([player.Job(file, str(out), {"exploration": 1.0}, 0, seconds=0.0)._asdict()]))
    adapter: Any = SimpleNamespace(CANDIDATES=[], start=start)
    player.serve(lambda job: player.play(adapter, job), jobs)
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"] is None
    assert answer["megabytes"] > 1
    with np.load(out) as played:
        assert played["arms"].shape == (3,)  # the time was up
    adapter.start = refuse
    player.serve(lambda job: player.play(adapter, job), jobs)
    assert json.loads(capsys.readouterr().out)["error"] == "of 23 inputs"


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environments, "python_of", lambda peer: Path(sys.executable))
    job = player.Job(str(tmp_path / "absent"), "", {}, 0)
    (done, other) = environments.run_jobs("no_such_peer", [job, job])
    assert done == other
    assert done.error is not None
    assert "no_such_peer" in done.error


def test_a_peer_that_does_not_install_is_in_the_table(monkeypatch: pytest.MonkeyPatch, path: Trajectory) -> None:
    def fail(peer: str, *_: Any) -> Any:
        raise environments.PeerError("error: no compiler")

    monkeypatch.setattr(quality, "run_jobs", fail)
    monkeypatch.setattr(quality, "tuned", lambda *_: {"algorithm": "LinUCB"})
    problem = Problem("psi-1", "run-0", path, None)
    rows = quality._play_peer("river", [problem], [Path()], [{}], SHORT, lambda done, total: None)  # noqa: SLF001
    assert [row.error for row in rows] == ["does not install: error: no compiler"] * 2
    assert quality.cells(rows, ["psi-1"], "to_known") == {
        "river, contexts, features": ["fails"],
        "river, … and own rewards": ["fails"],
    }
    assert quality.failures(rows)[0] == "river, contexts, features: does not install: error: no compiler (psi-1 run-0)"


def row(group: str, library: str, inputs: str, problem: str = "0", **values: Any) -> quality.Row:
    return quality.Row(group, problem, library, values.pop("policy", "LinUCB"), inputs, 0, **values)


def test_cells_show_medians_ranges_and_what_failed() -> None:
    rows = [row("psi-1", "river", quality.OWN, str(i), to_known=value) for i, value in enumerate((1.5, 1.0, 3.0))]
    assert quality.cells(rows, ["psi-1", "random"], "to_known") == {
        "river, … and own rewards": ["1.50 (1.00–3.00)", "–"]
    }
    rows[2] = rows[2]._replace(to_known=None, error="too slow")
    assert quality.cells(rows, ["psi-1"], "to_known")["river, … and own rewards"] == ["1.25 (1.00–1.50), 2 of 3"]


def test_the_headline_marks_the_best_whoever_it_is(tmp_path: Path) -> None:
    rows = [
        row("psi-1", "undertow", quality.OWN, policy="Autopilot", to_known=1.2, to_random=0.1),
        row("psi-1", "undertow", quality.OWN, policy="KalmanGreedy", to_known=1.0, to_random=0.1),
        row("psi-1", "undertow", quality.OWN, policy="LearnedKalman", to_known=1.1, to_random=0.1),
        row("psi-1", "river", quality.CONTEXTS, to_known=2.0, to_random=0.2),
        row("psi-1", "river", quality.OWN, to_known=1.3, to_random=0.1),
        row("psi-1", "coba", quality.CONTEXTS, error="too slow"),
        row("psi-1", "coba", quality.OWN, "0", error="too slow"),
        row("psi-1", "coba", quality.OWN, "1", to_known=0.9, to_random=0.1),
        row("victoria", "undertow", quality.OWN, policy="Autopilot", to_random=0.2),
        row("victoria", "river", quality.OWN, to_random=0.15),
    ]
    players = headline.lines(rows)
    assert [line.name for line in players] == ["KalmanGreedy", "undertow Autopilot", "coba", "river"]
    table = headline.table(players, ["psi-1", "victoria"], {"river": 93.2, "undertow linucb": 20.0})
    assert table.splitlines()[2:] == [
        "| KalmanGreedy | 1.00 | – |  |",
        "| undertow Autopilot | **1.20** | 80.0 |  |",
        "| coba | fails / 0.90* | – |  |",
        "| river | 2.00 / 1.30 | **85.0** | 4.7 |",
    ]
    short = headline.short_table(players, ["psi-1", "victoria", "stocks"], {"river": 93.2, "undertow linucb": 20.0})
    assert short.splitlines()[2:] == [
        "| undertow Autopilot | **1.20** | 80.0 |  |",
        "| coba | – | – |  |",
        "| river | 1.30 | **85.0** | 4.7 |",
    ]
    headline.draw(players, ["psi-1", "victoria"], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000


def test_tuning_takes_the_smallest_geometric_mean_and_no_failure() -> None:
    candidates: list[dict[str, Any]] = [{"alpha": 1}, {"alpha": 2}, {"alpha": 3}]
    tried = {0: [0.4, 0.4, math.inf], 1: [0.1, 0.9, math.inf], 2: [0.01, math.inf, math.inf]}
    found = tune.chosen(candidates, tried)
    assert found == {"parameters": {"alpha": 2}, "to_random": 0.3, "default_to_random": 0.4}
    nothing = tune.chosen(candidates[:1], {0: [math.inf]})
    assert nothing["parameters"] == {"alpha": 1}


def test_every_peer_is_pinned_and_tuned_for_all_that_is_played() -> None:
    adapters = {file.stem for file in (ROOT / "benchmarks" / "peers").glob("*.py")} - {"play", "protocol"}
    assert adapters == set(PEERS) == set(quality.SLOWEST_FIRST)
    content = json.loads(tune.TUNED.read_text())
    assert re.search(rf"^{content['command'].removeprefix('make ')}:", (ROOT / "Makefile").read_text(), re.M)
    groups = {*(f"psi-{psi}" for psi in SHORT.psi), "random", *SHORT.recorded}
    for peer in PEERS:
        assert all("==" in pin for pin in environments.PINS[peer])
        assert content["peers"][peer]["version"] == environments.versions()[peer]
        for inputs in tune.LAGS:
            assert groups <= set(content["peers"][peer]["chosen"][inputs])


def test_what_is_tuned_on_is_not_what_is_played() -> None:
    assert TEST_SEED != TUNING_SEED
    assert not set(TUNING_SYSTEMS) & set(range(20))


def test_spread() -> None:
    assert report.spread([2.0]) == "2.00"
    assert report.spread([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0–3.0)"


def test_the_page_has_no_dead_links() -> None:
    page = ROOT / "benchmarks" / "README.md"
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_checkouts_are_measured_in_turn(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = versus.Checkout(ROOT), versus.Checkout(ROOT)
    order: list[bool] = []

    def take(side: versus.Checkout, *, factor: float) -> float:
        order.append(side is old)
        return factor * (1.0 if side is old else 3.0)

    rows: dict[str, versus.Both] = {}
    for _ in range(2):
        versus.add(rows, "a call", versus.in_turn(old, new, 2, take, factor=1e-6))
    assert order == [False, True, True, False] * 2
    assert rows == {"a call": ([1e-6] * 4, [3e-6] * 4)}
    versus.show("Times", rows)
    last = capsys.readouterr().out.splitlines()[-1]
    assert " ".join(last.split()) == "a call 1 µs 3 µs 3.000 3.000 to 3.000"
    with pytest.raises(SystemExit, match="expected a checkout with src/undertow"):
        versus.Checkout(ROOT / "src")


def test_a_worker_imports_its_own_checkout() -> None:
    checkout = versus.Checkout(ROOT)
    try:
        assert Path(checkout.ask(measure="where")) == ROOT / "src" / "undertow" / "__init__.py"
    finally:
        checkout.end()


def test_the_tuner_is_measured_on_every_example(capsys: pytest.CaptureFixture[str]) -> None:
    found = report.Report()
    tuner.measure_examples(found, worlds=1, rounds=30)
    assert [title.split(":")[0] for title in found.tables] == ["queries", "controllers", "compression"]
    targets = [len(table["targets"]) for table in found.tables.values()]
    assert targets == [2, 2, 1]
    times = tuner.call_times(2, 1, calls=60)
    assert times.shape == (60,)
    assert (times > 0).all()
    assert "Autopilot / best fixed choice, median" in capsys.readouterr().out
