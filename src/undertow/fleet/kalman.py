"""Keys that learn from one another: levels whose parameters and arm means are estimated over the fleet."""

import math
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.fleet.bucket import Data
from undertow.fleet.decisions import Decisions
from undertow.fleet.fleet import Fleet
from undertow.fleet.found import Found
from undertow.fleet.keys import Keys
from undertow.fleet.pooling import Pooled, Units, pool, units_of
from undertow.learning.threads import shared_threads
from undertow.live import LivePolicy
from undertow.models.levels.equations import HYPERS, Hyper
from undertow.models.levels.filter import CONSTANT
from undertow.models.levels.fit import LevelsModel, levels_model
from undertow.policies.levels import LevelsKalman
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["FleetKalman"]

_FIRST, _GROWTH = 40, 1.5  # rewards before the first fit, and how many times as many before each later one
_MIX = np.uint64(0x9E3779B97F4A7C15)


class _Fit(NamedTuple):
    """What a fit has found."""

    units: Units
    pooled: Pooled


class FleetKalman(Fleet):
    """A fleet of structural levels whose keys learn from one another.

    Each key has the levels of `StructuralKalman`. Their dynamics, the differences between arms and keys, and the arms'
    mean rewards are estimated over all keys together (empirical Bayes). So a new key starts from the fleet's estimates,
    and follows its own rewards as they come. Rewards of all keys should be in comparable units.

    The fits use the last rounds of a sample of keys, which the seed determines. After a late reward, the last rounds of
    its key are filtered again; one that is more than `max_delay` rounds late is refused.

    Parameters
    ----------
    policy
        A `LevelsKalman`: arms, features, exploration. The first fit replaces its parameters; until then arms take
        turns. The fits use its remembered rounds, `max_delay` of each key.
    sample
        Maximum number of keys in a fit.
    refit
        Whether a call waits for a due fit ("inline"), or a thread makes it ("background"). Inline fits are
        reproducible.
    buckets, threads
        As in `Fleet`.

    Examples
    --------
    >>> from undertow.fleet import FleetKalman
    >>> from undertow.policies import LevelsKalman
    >>> fleet = FleetKalman(LevelsKalman(arms=["low", "high"], rng=0))
    >>> for week in range(30):
    ...     decisions = fleet.decide_many(["shop 1", "shop 2", "shop 3"])
    ...     learned = fleet.learn_many(decisions, 10.0 + 5.0 * decisions.arms)
    >>> fleet.decide("new shop").name
    'high'
    """

    def __init__(
        self,
        policy: LivePolicy,
        *,
        sample: int = 200,
        refit: Literal["inline", "background"] = "inline",
        buckets: int = 8,
        threads: int = 1,
    ) -> None:
        if not isinstance(policy, LevelsKalman):
            raise InvalidInputError(
                f"policy: expected a LevelsKalman, got {policy!r:.60}; Fleet accepts other policies"
            )
        super().__init__(policy, buckets=buckets, threads=threads)
        self._sample = checks.integer("sample", sample, least=1)
        self._refit = checks.choice("refit", refit, ("inline", "background"))
        self._seed = np.uint64(self._template.policy.parts.streams.seeds.generate_state(1, np.uint64)[0])
        self._rewards, self._next_fit, self._fits = 0, float(_FIRST), 0
        self._found: _Fit | None = None
        self._horizon = 0.0
        self._busy, self._arrived = False, list[_Fit]()
        self._stack.write("settings", turns=1.0)

    # Estimates over all keys

    @property
    def fits(self) -> int:
        """Number of fits in effect so far."""
        return self._fits

    @property
    def levels(self) -> LevelsModel | None:
        """Parameters of the levels, in the units of the rewards; None before the first fit."""
        with self._lock:
            if self._found is None:
                return None
            return levels_model(self._found.pooled.hyper, self._found.units.scale)

    @property
    def arm_means(self) -> dict[str, float] | None:
        """A new key's forecast of each arm, under average features; None before the first fit."""
        with self._lock:
            if self._found is None:
                return None
            units, pooled = self._found
            values = (-1.0 if self._template.policy.minimize else 1.0) * (units.mean + units.scale * pooled.means)
            return dict(zip(self.names, values.tolist(), strict=True))

    # Calls

    def _decide(self, given: Keys, data: Data, *, observed: bool, exact: bool = False) -> Decisions:
        with self._inside():
            self._attend_to_fits()
            return super()._decide(given, data, observed=observed, exact=exact)

    def _learn(self, found: Found, rewards: FloatArray, *, refuse: bool) -> npt.NDArray[np.bool_]:
        with self._inside():
            learned = super()._learn(found, rewards, refuse=refuse)
            self._rewards += int(learned.sum())
            return learned

    # Fits

    def _attend_to_fits(self) -> None:
        """Swap in a background fit, and make or request the next one if it is due."""
        while self._arrived:
            self._install(self._arrived.pop())
            self._busy = False
        if self._rewards < self._next_fit or self._busy:
            return
        rows, starts = self._log()
        self._next_fit = max(self._rewards, _FIRST) * _GROWTH
        task = (rows, starts, self._template.k, self._found)
        if self._refit == "inline":
            self._install(_fitted(*task))
            return
        self._busy, arrived = True, self._arrived
        shared_threads(self).do(lambda: arrived.append(_fitted(*task)))

    def _log(self) -> tuple[FloatArray, FloatArray]:
        """Return the remembered rewards of the sampled keys, key after key, and the first row of each."""
        hashes = np.concatenate([bucket.keys.keys.hashes for bucket in self._stack.buckets])
        order = np.argsort((hashes ^ self._seed) * _MIX, kind="stable")[: self._sample]
        ends = np.cumsum([bucket.count for bucket in self._stack.buckets])
        logs = []
        for place in order.tolist():
            number = int(np.searchsorted(ends, place, side="right"))
            bucket = self._stack.buckets[number]
            logs.append(remembered(self._template.layout.open(bucket.states[place - ends[number] + bucket.count])))
        logs = [log for log in logs if len(log)]
        starts = np.cumsum([0, *map(len, logs)])[:-1]
        return np.concatenate(logs), starts.astype(np.float64)

    def _install(self, fit: _Fit) -> None:
        """Apply a fit to every key; each filters its last rounds again on its next use."""
        before = np.zeros(self._template.k) if self._found is None else self._found.pooled.means
        shift = np.zeros((self._template.k, 3 + len(fit.units.centre)))
        shift[:, CONSTANT] = before - fit.pooled.means
        self._stack.add("base.own", shift.ravel())
        horizon = float(np.concatenate([bucket.all_rounds() for bucket in self._stack.buckets]).mean())
        self._write(fit, horizon)
        self._fits += 1

    def _write(self, fit: _Fit, horizon: float) -> None:
        """Write the estimates of a fit into all present and future states."""
        (mean, scale, centre, spread), pooled = fit
        hyper = pooled.hyper.copy()
        Hyper(hyper, 0).intercept_variance += float(pooled.variances.mean())
        write = self._stack.write
        write("reward", mean=mean, scale=scale)
        for name, values in {"hyper": hyper, "means": pooled.means, "centre": centre, "scale": spread}.items():
            write(name, values)
        write("settings", horizon=horizon, limit=pooled.limit, degrees=pooled.degrees, turns=0.0)
        write("progress", stale=1.0)
        self._found, self._horizon = fit, horizon

    # Save files

    def _snapshot(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        header, arrays = super()._snapshot()
        found = None if self._found is None else _as_lists(self._found)
        known = {"rewards": self._rewards, "next_fit": self._next_fit, "fits": self._fits, "horizon": self._horizon}
        return header | known | {"sample": self._sample, "refit": self._refit, "found": found}, arrays

    @classmethod
    def _made(cls, header: dict[str, Any], policy: LivePolicy, threads: int) -> Self:
        buckets, sample, refit = (header[name] for name in ("buckets", "sample", "refit"))
        return cls(policy, buckets=buckets, sample=sample, refit=refit, threads=threads)

    def fill(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Restore an unused fleet from a save file."""
        self._rewards, self._fits = (checks.integer(name, header[name], least=0) for name in ("rewards", "fits"))
        self._next_fit = checks.number("next_fit", header["next_fit"], least=0)
        if header["found"] is not None:
            horizon = checks.number("horizon", header["horizon"], least=0)
            self._write(_from_lists(header["found"], self._template.policy), horizon)
        super().fill(header, arrays)


def _as_lists(fit: _Fit) -> dict[str, Any]:
    """Return a fit for JSON; an infinite limit is null."""
    entries = fit.units._asdict() | fit.pooled._asdict()
    plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in entries.items()}
    return plain | {"limit": None if fit.pooled.limit == math.inf else fit.pooled.limit}


def _from_lists(entries: dict[str, Any], policy: LevelsKalman) -> _Fit:
    """Parse the output of `_as_lists`."""
    k, q = policy.arm_count, policy.feature_dim
    lengths = {"centre": q, "spread": q, "hyper": HYPERS, "means": k, "variances": k}
    arrays = {name: np.array(checks.array(name, entries[name], (length,))) for name, length in lengths.items()}
    limit = math.inf if entries["limit"] is None else checks.number("limit", entries["limit"], above=0)
    units = Units(
        checks.number("mean", entries["mean"]),
        checks.number("scale", entries["scale"], above=0),
        arrays["centre"],
        arrays["spread"],
    )
    degrees = checks.number("degrees", entries["degrees"], least=2)
    return _Fit(units, Pooled(arrays["hyper"], arrays["means"], arrays["variances"], degrees, limit))


def _fitted(rows: FloatArray, starts: FloatArray, k: int, before: _Fit | None) -> _Fit:
    """Estimate the common parameters of keys; the units stay those of the first fit."""
    if before is None:
        units = units_of(rows)
        return _Fit(units, pool(rows, starts, units, k))
    return _Fit(before.units, pool(rows, starts, before.units, k, before.pooled))


def remembered(own: Any) -> FloatArray:
    """Return the remembered rewards of a key: arm, reward, features, and time steps since the row before."""
    rounds, n = int(own.common.head.rounds), len(own.past_arm)
    slots = np.arange(max(rounds - n, 0), rounds) % n
    slots = slots[(own.past_arm[slots] >= 0) & ~np.isnan(own.past_reward[slots])]
    elapsed = np.diff(own.past_time_step[slots], prepend=0.0)
    return np.column_stack([own.past_arm[slots], own.past_reward[slots], own.past_features[slots], elapsed])
