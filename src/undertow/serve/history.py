"""The past of a bandit as thinned columns for a page, and its mean reward against baselines."""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from undertow.serve.answers import Earned, Figures, History, Mark
from undertow.store import DurablePolicy, Row, Store
from undertow.store.answers import read_answer

__all__ = ["figures_of", "history_of"]

Floats = npt.NDArray[np.float64]
_LATELY = 1000  # events from which rates are computed
_PAGE = 100_000
_LEAST = 10  # random plays of an arm from which its mean is estimated


class _Event(msgspec.Struct, tag_field="event"):
    """The parts of an event that a page needs; the rest is not read."""


class _Decided(_Event, tag="decided"):
    id: str
    round: int
    arm: int
    propensity: float


class _Rewarded(_Event, tag="rewarded"):
    id: str
    reward: float


_PLAYED = msgspec.json.Decoder(_Decided | _Rewarded)
_PLAYED_BEGIN = (b'{"event":"decided"', b'{"event":"rewarded"')
_SILENT = (b'{"event":"observed"', b'{"event":"skipped"', b'{"event":"recalled"', b'{"event":"reseeded"')


class _Past:
    """Decisions and rewards of some events."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.made: list[_Decided] = []
        self.at: list[float] = []
        self.marks: list[Mark] = []
        place: dict[str, int] = {}
        rewards: dict[int, float] = {}
        delays: dict[int, float] = {}
        for row in rows:
            if not row.body.startswith(_PLAYED_BEGIN):
                if not row.body.startswith(_SILENT):
                    self._mark(row)
                continue
            event = _PLAYED.decode(row.body)
            if isinstance(event, _Decided):
                place[event.id] = len(self.made)
                self.made.append(event)
                self.at.append(row.at)
            elif (number := place.get(event.id)) is not None:
                rewards[number], delays[number] = event.reward, row.at - self.at[number]
        self.reward, self.delay = self._column(rewards), self._column(delays)
        self.arm = np.array([event.arm for event in self.made], dtype=np.int64)
        self.propensity = np.array([event.propensity for event in self.made])

    def _column(self, values: dict[int, float]) -> Floats:
        column = np.full(len(self.made), np.nan)
        column[list(values)] = list(values.values())
        return column

    def _mark(self, row: Row) -> None:
        event = msgspec.json.decode(row.body)
        kind, t = event["event"], self.made[-1].round + 1 if self.made else 0
        text = {
            "arm added": "arm {name} added",
            "arm retired": "arm {name} retired",
            "pinned": "{name} pinned",
            "unpinned": "pin removed",
            "costs set": "costs changed",
            "installed": "{model}: fitted in {seconds:.2f} s",
        }.get(kind, kind)
        if event.get("failure"):
            text = "{model}: fit failed ({failure})"
        self.marks.append(Mark(row.n, row.at, t, kind, text.format(**event)))


def _read(store: Store, name: str, after: int) -> list[Row]:
    """Return all committed events after a number."""
    rows: list[Row] = []
    while page := store.events(name, rows[-1].n if rows else after, _PAGE):
        rows += page
        if len(page) < _PAGE:
            break
    return rows


def history_of(store: Store, name: str, arms: Sequence[str], after: int, points: int) -> History:
    """Return the past of a bandit after an event, at most about so many rows of it."""
    rows = _read(store, name, after)
    past = _Past(rows)
    kept = _thinned(past.reward, points)
    answers = {
        answer.id: read_answer(answer).decision for answer in store.answers(name, [past.made[i].id for i in kept])
    }
    decisions = [answers.get(past.made[i].id) for i in kept]
    models = sorted({each.why.model for each in decisions if each is not None and each.why is not None})
    k = len(arms)
    forecast, band = np.full((len(kept), k), np.nan), np.full((len(kept), k), np.nan)
    model, lead = [-1] * len(kept), np.full(len(kept), np.nan)
    for place, decision in enumerate(decisions):
        if decision is None:  # it was trimmed
            continue
        forecast[place, : len(decision.forecast)] = decision.forecast
        why = decision.why
        band[place, : len(decision.width)] = decision.width if why is None else np.hypot(why.state_error, why.arm_error)
        if why is not None:
            model[place], lead[place] = models.index(why.model), why.lead
    plays = np.bincount(past.arm, minlength=k)[:k]
    known = ~np.isnan(past.reward)
    sums = np.bincount(past.arm[known], weights=past.reward[known], minlength=k)[:k]
    counts = np.bincount(past.arm[known], minlength=k)[:k]
    return History(
        list(arms),
        models,
        rows[0].n if rows else after,
        rows[-1].n if rows else after,
        len(past.made),
        plays.tolist(),
        _plain(np.divide(sums, counts, out=np.full(k, np.nan), where=counts > 0)),
        [past.made[i].id for i in kept],
        [past.made[i].round for i in kept],
        [past.at[i] for i in kept],
        past.arm[kept].tolist(),
        past.propensity[kept].tolist(),
        _plain(past.reward[kept]),
        _plain(past.delay[kept]),
        model,
        _plain(lead),
        [_plain(forecast[:, arm]) for arm in range(k)],
        [_plain(band[:, arm]) for arm in range(k)],
        _earned(past, arms, kept),
        past.marks,
    )


def _thinned(rewards: Floats, points: int) -> list[int]:
    """Return the rows to keep: of each stretch, the first, and those with the smallest and largest reward."""
    if len(rewards) <= points:
        return list(range(len(rewards)))
    kept = {0, len(rewards) - 1}
    for part in np.array_split(np.arange(len(rewards)), max(points // 3, 1)):
        some = rewards[part]
        kept.add(int(part[0]))
        if not np.isnan(some).all():
            kept |= {int(part[np.nanargmin(some)]), int(part[np.nanargmax(some)])}
    return sorted(kept)


def _plain(values: Floats) -> list[float | None]:
    """Return numbers with five digits, as a page shows them, and null for NaN."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values.tolist()]


def _earned(past: _Past, arms: Sequence[str], kept: Sequence[int]) -> Earned:
    """Return mean rewards so far, of the bandit and of baselines, estimated from decisions with a random arm."""
    known = ~np.isnan(past.reward)
    drawn = known & (past.propensity < 1)
    share = float(drawn.sum() / max(known.sum(), 1))
    bandit = _means(np.where(known, past.reward, 0.0), known.astype(float))
    nothing: list[float | None] = [None] * len(kept)
    missing = None
    if not known.any():
        missing = "no reward has come yet"
    elif not drawn.any():
        missing = (
            "every arm was played with probability 1, so baselines cannot be estimated; explore=0.05 "
            "makes one decision in twenty random"
        )
    if missing is not None:
        return Earned(0, share, _plain(bandit[kept]), nothing, nothing, None, None, missing)
    weights = np.where(drawn, 1 / past.propensity, 0.0)
    gains = np.where(drawn, past.reward, 0.0) * weights
    found = {arm: estimate for arm in range(len(arms)) if (estimate := _fixed(past, drawn & (past.arm == arm)))}
    best = max(found, key=lambda arm: found[arm][0] - found[arm][1], default=-1)  # few plays may look good by luck
    mine = past.arm == best
    uniform = _means(gains, weights)
    fixed = _means(np.where(mine, gains, 0.0), np.where(mine, weights, 0.0))
    return Earned(
        int(drawn.sum()),
        share,
        _plain(bandit[kept]),
        _plain(uniform[kept]),
        _plain(fixed[kept]),
        arms[best] if found else None,
        found[best][1] if found else None,
        None,
    )


def _fixed(past: _Past, drawn: npt.NDArray[np.bool_]) -> tuple[float, float] | None:
    """Return the estimated mean reward of one arm, and its standard error; None after too few random plays."""
    if drawn.sum() < _LEAST:
        return None
    weights, rewards = 1 / past.propensity[drawn], past.reward[drawn]
    mean = float(weights @ rewards / weights.sum())
    return mean, float(np.sqrt(weights**2 @ (rewards - mean) ** 2) / weights.sum())


def _means(values: Floats, weights: Floats) -> Floats:
    """Return weighted means so far; NaN before the first weight."""
    sums, totals = np.cumsum(values), np.cumsum(weights)
    means: Floats = np.divide(sums, totals, out=np.full(len(sums), np.nan), where=totals > 0)
    return means


def figures_of(store: Store, name: str, policy: DurablePolicy) -> Figures:
    """Return a bandit at a glance."""
    with policy.transaction() as now:
        health, newest, pinned = now.health(), policy.newest, now.pinned
        models = getattr(now, "models", ())
    rows = store.events(name, max(newest - _LATELY, 0), _LATELY)
    past = _Past(rows)
    delays = past.delay[~np.isnan(past.delay)]
    came = [row.at for row in rows if row.body.startswith(_PLAYED_BEGIN[1])]
    hours = (came[-1] - rows[0].at) / 3600 if came else 0.0
    return Figures(
        health.ok,
        list(health.problems),
        health.round,
        health.pending,
        health.waited if health.pending else 0,
        models[0].name if models else None,
        pinned,
        len(came) / hours if hours > 0 else None,
        float(np.quantile(delays, 0.95)) if len(delays) else None,
        dict(health.refused),
        sum(health.alarms.values()),
    )
