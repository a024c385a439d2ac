"""Files as people have them: recorded data in the forms that spreadsheets, logs and wide exports take."""

import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tables import Terminal
from undertow import make, paper_system, simulate
from undertow.errors import InvalidInputError
from undertow.problems.datasets import dataset
from undertow.replay import diagnose, parse_policies, read_table, replay_table
from undertow.replay.cells import read_numbers, tidy
from undertow.replay.dates import read_times

DAYS = 300
FIRST = datetime.datetime(2023, 12, 31, 22, 15)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(monkeypatch, capsys)


def german(number: float) -> str:
    return f"{number:,.4f}".translate(str.maketrans(",.", ".,"))


@pytest.fixture
def excel_export(tmp_path: Path) -> Path:
    """Daily returns in points as a German Excel saves them, with #NV on days without trade."""
    returns = 20_000 * dataset("stocks").trajectory.rewards[:DAYS]
    lines = ["Börsentag;Rendite DAX;Rendite SMI;Rendite CAC;Rendite FTSE;geprüft"]
    for t, row in enumerate(returns):
        cells = ["#NV" if t % 50 == 7 and arm == 2 else german(value) for arm, value in enumerate(row)]
        lines.append(";".join([f"{FIRST + datetime.timedelta(days=t):%d.%m.%Y}", *cells, "ja (Müller)"]))
    (tmp_path / "kurse.csv").write_bytes("\r\n".join([*lines, ""]).encode("cp1252"))
    return tmp_path / "kurse.csv"


@pytest.fixture
def quoted_log(tmp_path: Path) -> Path:
    """A log of forecasters with quotation marks, line breaks in cells, American times, several words for nothing."""
    data = dataset("victoria")
    rewards, rng = data.trajectory.rewards[:DAYS], np.random.default_rng(0)
    lines = ['"when","arm","reward","propensity","context_load","feature_device","comment"']
    for t, row in enumerate(rewards):
        arm, when = int(rng.integers(5)), FIRST + datetime.timedelta(hours=t)
        clock = f"{when.month}/{when.day}/{when.year} {when.strftime('%I:%M %p').lstrip('0')}"
        reward = "n/a" if t % 40 == 3 else f"{row[arm]:.5f}"
        load = ["-", "12", "13.5", "1e3"][t % 4]
        said = ['"he said ""no"", twice"', '"two\nlines"', "plain", ""][t % 4]
        lines.append(f'"{clock}","{data.arms[arm]}","{reward}",20%,{load},"{["iOS, 17", "web"][t % 2]}",{said}')
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path / "log.csv"


@pytest.fixture
def wide_table(tmp_path: Path) -> Path:
    """Twenty stations, of which some open late, close at times, or are not counted at all on a day."""
    counts = dataset("chicago").trajectory.rewards[:DAYS].copy()
    counts[:60, 3], counts[100:130, 7], counts[200, :] = np.nan, np.nan, np.nan
    names = [f"st. {arm}" for arm in range(20)]
    frame = pl.DataFrame(counts, schema=names).with_columns(pl.all().fill_nan(None))
    days = [f"{FIRST + datetime.timedelta(days=t):%Y/%m/%d}" for t in range(DAYS)]
    frame.insert_column(0, pl.Series("date", days))
    frame.write_csv(tmp_path / "stations.txt", separator="|", null_value="NA")
    return tmp_path / "stations.txt"


def test_an_export_of_a_german_excel(excel_export: Path, command: Terminal) -> None:
    table = read_table(excel_export, rewards=["Rendite *"], time="Börsentag", phases=["weekday"])
    expected = np.round(20_000 * dataset("stocks").trajectory.rewards[:DAYS], 4)
    assert table.available is not None
    gone = ~table.available
    assert gone[:, 2].sum() == 6
    assert gone.sum() == 6
    np.testing.assert_allclose(table.payoffs[~gone], expected[~gone], rtol=0, atol=1e-9)
    assert table.notes[0] == (
        "recognised: encoding cp1252, separator ';', decimal mark ',', dates as dd.mm.yyyy, missing if '#NV'; "
        "--encoding, --separator, --decimal, --date-format and --na overrule this"
    )
    options = ["--rewards", "Rendite *", "--time", "Börsentag", "--out", str(excel_export.parent / "out")]
    done = command("replay", str(excel_export), *options, "--policies", "random, ucb")
    assert done.status == 0, done.err
    fixed = {"encoding": "cp1252", "separator": ";", "decimal": ",", "date_format": "dd.mm.yyyy", "na": "#NV"}
    words = [word for name, value in fixed.items() for word in (f"--{name.replace('_', '-')}", value)]
    done = command("replay", str(excel_export), *options, *words, "--policies", "random, ucb")
    assert done.status == 0
    assert "recognised" not in done.out  # all of it was given


def test_a_log_with_quotation_marks_and_mixed_types(quoted_log: Path, command: Terminal) -> None:
    table = read_table(quoted_log, time="when", phases=["hour"])
    assert table.log is not None
    assert (table.rounds, len(table.arms), int((~table.log.paid).sum())) == (DAYS, 5, 8)
    assert set(table.log.propensities) == {0.2}
    assert np.isnan(table.contexts[::4, 0]).all()
    assert table.contexts[1:4, 0].tolist() == [12, 13.5, 1000]
    assert table.feature_names[:2] == ("feature_device=iOS, 17", "feature_device=web")
    hour = (FIRST + datetime.timedelta(hours=5)).hour + 0.25
    assert table.features[5, 2] == pytest.approx(np.cos(2 * np.pi * hour / 24))
    assert "dates as mm/dd/yyyy, missing if '-' or 'n/a'" in table.notes[0]
    out = str(quoted_log.parent / "out")
    assert command("replay", str(quoted_log), "--time", "when", "--policies", "ucb", "--out", out).status == 0


def test_a_wide_table_with_gaps(wide_table: Path) -> None:
    table = read_table(wide_table, rewards=["st. *"])
    assert (table.rounds, len(table.arms)) == (DAYS - 1, 20)
    assert "left out: 1 row without any reward" in table.notes
    assert any("st. 3 in 60, st. 7 in 30 of 299 rounds" in note for note in table.notes)
    result = replay_table(table, parse_policies("ucb, random"), runs=2)
    there = table.available
    assert there is not None
    for arms in result.choices.values():
        assert there[np.arange(table.rounds), arms].all()
    rows = {row["policy"].partition(":")[0]: row for row in result.summary.iter_rows(named=True)}
    assert table.rewards is not None
    means = np.nanmean(table.rewards, axis=1)
    kept = np.where(np.isnan(table.rewards), means[:, None], table.rewards).mean(axis=0)
    assert rows["any arm at random"]["reward"] == pytest.approx(means.mean())
    assert rows["best fixed arm"]["reward"] == pytest.approx(kept.max())
    assert rows["clairvoyant"]["reward"] == pytest.approx(np.nanmax(table.rewards, axis=1).mean())
    assert np.isfinite(diagnose(table).rule_share.value)


def test_availability_in_a_simulation() -> None:
    paths = paper_system(psi=1).sample(120, rng=0, runs=2)
    ares, all_there = make("ares", arms=2, context_dim=1), np.ones((120, 2), dtype=bool)
    assert (simulate(ares, paths).arms == simulate(ares, paths, available=all_there).arms).all()
    there = np.random.default_rng(0).random((120, 2)) < 0.6
    there[~there.any(axis=1), 1] = True
    arms = simulate(ares, paths, available=there).arms
    assert there[np.arange(120), arms].all()
    assert there[np.arange(120), simulate(make("random", arms=2), paths, available=there).arms].all()  # no contexts
    alone = there.sum(axis=1) == 1
    assert (arms[:, alone] == there[alone].argmax(axis=1)).all()
    with pytest.raises(InvalidInputError, match="expected at least one arm in every round, got none in round 0"):
        simulate(ares, paths, available=~all_there)
    with pytest.raises(InvalidInputError, match="expected 120 rows of 2 truth values"):
        simulate(ares, paths, available=there[1:])


def test_what_is_given_is_not_recognised_otherwise(tmp_path: Path) -> None:
    text = "day,reward_a,reward_b\n2/1/2024,1,-999\n3/1/2024,?,2\n"
    (tmp_path / "a.csv").write_text(text, encoding="utf-16")
    table = read_table(tmp_path / "a.csv", time="day", date_format="dd/mm/yyyy", na=["-999", "?"])
    assert table.available is not None
    assert table.available.tolist() == [[True, False], [False, True]]
    assert table.notes[0] == "recognised: encoding utf-16; --encoding overrules this"
    frame = pl.DataFrame({"reward_a": [1.0, -999.0], "reward_b": [3, 4]})
    assert read_table(frame, na=["-999"]).payoffs.tolist() == [[1, 3], [4, 4]]


@pytest.mark.parametrize(
    ("cells", "form", "expected"),
    [
        (["31.3.2024 14:00", "1.4.2024 0:30"], "dd.mm.yyyy", "2024-04-01 00:30:00"),
        (["3/31/2024", "4/1/2024"], "mm/dd/yyyy", "2024-04-01 00:00:00"),
        (["9/30/2024", "10/1/2024", "10/2/2024"], "mm/dd/yyyy", "2024-10-02 00:00:00"),
        (["9/11/2024", "10/11/2024"], "?", None),  # two days, or two months: both rise
        (["1/12/2024", "2/12/2024", "3/1/2024"], "mm/dd/yyyy", "2024-03-01 00:00:00"),  # else it would fall
        (["31.12.68 23:59:58", "1.1.70"], "dd.mm.yy", "1970-01-01 00:00:00"),
        (["2024/03/31 2:00 PM", "2024/03/31 12:05 am"], "yyyy/mm/dd", "2024-03-31 00:05:00"),
        (["1.3.2024", "30.2.2024"], "dd.mm.yyyy", None),
        (["Mar 3, 2024"], "", None),
    ],
)
def test_times_as_people_write_them(cells: list[str], form: str, expected: str | None) -> None:
    values, found = read_times(pl.Series(cells), None)
    assert found == form
    assert values.dt.strftime("%Y-%m-%d %H:%M:%S").to_list()[-1] == expected


def test_numbers_survive_in_both_notations() -> None:
    values = np.random.default_rng(0).standard_normal(200) * 10.0 ** (np.arange(200) % 9)
    english = pl.Series([f"{value:,.6f}" for value in values])
    exchanged = english.str.replace_many([",", "."], [".", ","])
    for text, mark in ((english, "."), (exchanged, ",")):
        read, _ = read_numbers(tidy(text), decimal=mark)
        np.testing.assert_allclose(read.to_numpy(), np.round(values, 6), rtol=1e-15)
