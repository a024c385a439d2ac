"""A system estimated from a log, for users with a log but no bandit."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.models.shared_system.search import Attempt, Search, challenge, fit_one
from undertow.models.shared_system.vector import MAX_ORDER, scales_of, standardized, to_system
from undertow.models.table import played_arms
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.timesteps import rows_in_time, with_one_context
from undertow.system import LinearGaussianSystem

__all__ = ["FittedSystem", "fit"]

_ROUNDS = 3000  # rounds for the choice of the order; the final fit uses all
_BOUTS = 5  # of challenges, at most
_POLISH = 40  # evaluations of the likelihood
_GAIN = 1.0  # nats: a series that gains less is the last


@dataclass(frozen=True, eq=False)
class FittedSystem:
    """The system that a log supports.

    Attributes
    ----------
    system
        In the units of the log and the basis in which the state noise is the identity.
    log_likelihood
        Log density of all observations.
    degrees_of_freedom
        Effective number of parameters: those determined by the log, not the prior.
    innovations
        Each context entry, then the reward, minus its forecast, standardized, (n, m + 1); NaN if not observed.
    tried
        All models tried, in order.
    """

    system: LinearGaussianSystem
    log_likelihood: float
    degrees_of_freedom: float
    innovations: FloatArray
    tried: tuple[Attempt, ...]

    @property
    def order(self) -> int:
        """Dimension of the hidden state."""
        return self.system.state_dim


def fit(
    arms: npt.ArrayLike | None = None,
    rewards: npt.ArrayLike | None = None,
    *,
    contexts: npt.ArrayLike | None = None,
    elapsed: npt.ArrayLike | None = None,
    order: int | None = None,
    arm_count: int | None = None,
    rng: int | np.random.SeedSequence | np.random.Generator = 0,
) -> FittedSystem:
    """Fit a hidden linear Gaussian system to a log of plays, or to a table of measurements, by penalised likelihood.

    Parameters
    ----------
    arms
        The arm played in each round, (n,), −1 if none was; None if there are no arms, only contexts.
    rewards
        Its reward, (n,), NaN if none came. Rewards of rounds without an arm are ignored.
    contexts
        (n, m), NaN if an entry is missing; None for a log of rewards alone.
    elapsed
        Time steps that began since the round before, (n,): 1 for all by default, 0 for rounds of the same time step,
        which have the same context, or NaN.
    order
        Dimension of the hidden state, 1 to 8; estimated when None.
    arm_count
        k; one more than the largest number in `arms` by default.
    rng
        Seed of the random starts.

    Examples
    --------
    >>> from undertow import paper_system
    >>> path = paper_system(psi=2).sample(1000, rng=1)
    >>> arms = np.random.default_rng(0).integers(0, 2, 1000)
    >>> found = fit(arms, path.rewards[np.arange(1000), arms], contexts=path.contexts)
    >>> found.order >= 4, 0.9 < found.system.spectral_radius <= 1
    (True, True)
    >>> fit(contexts=path.contexts).system.context_dim  # a table alone, without arms
    1
    """
    if arms is None:
        if rewards is not None or contexts is None:
            raise InvalidInputError(
                "arms, contexts: expected arms with their rewards, or contexts alone; pass one of them"
            )
        arms = np.full(len(np.atleast_1d(checks.numbers("contexts", contexts))), -1)
    played, k = played_arms(arms, arm_count)
    n = len(played)
    if rewards is None:
        rewards = np.full(n, math.nan)
    if not n:
        raise InvalidInputError("arms: expected at least one round, got none")
    x = np.array(checks.measured("rewards", rewards, (n,), missing=True))
    θ = checks.measured("contexts", np.empty((n, 0)) if contexts is None else contexts, (n, "m"), missing=True)
    m = θ.shape[1]
    if order is not None and checks.integer("order", order, least=1) > MAX_ORDER:
        raise InvalidInputError(f"order: expected at most {MAX_ORDER}, got {order}")
    x[played < 0] = math.nan
    if np.isnan(x).all() and np.isnan(θ).all():
        raise InvalidInputError("rewards: expected at least one round with a reward or a context, got none")
    places, same = rows_in_time(elapsed, n)
    raw = np.full((int(places[-1]) + 1, m + 2 + same.any()), math.nan)
    raw[:, m], raw[:, m + 2 :] = -1.0, 0.0
    raw[places, : m + 2] = np.column_stack([with_one_context(θ, same, last=False), played, x])
    raw[places, m + 2 :] = same[:, None]
    scales = scales_of(raw, m)
    search = Search.on(standardized(raw, scales), m, k)
    draw = checks.child(checks.seed_sequence(rng), checks.SYSTEM_BRANCH, 0)
    small, model, tried, turn = search.last(_ROUNDS), None, [], 0
    for _ in range(_BOUTS):
        before = -math.inf if model is None else model.criterion
        model, _, turn, more = challenge(small, model, draw, math.inf, turn, order)
        tried += more
        if not model.criterion > before + _GAIN:
            break
    assert model is not None
    final, used = fit_one(search, model, em_steps=0, evaluations=_POLISH)
    if not math.isfinite(final.log_likelihood):
        raise InvalidInputError("rewards: no system with a finite likelihood was found for this log")
    tried.append(Attempt("final", final.order, final.log_likelihood, final.freedom, used))
    settled, _ = fit_one(search, final, em_steps=0, evaluations=1)
    v, F = (values[places] for values in search.innovations())
    seen = np.sum(~np.isnan(v), axis=0)
    return FittedSystem(
        system=to_system(final, scales),
        log_likelihood=float(settled.log_likelihood - seen @ np.log(scales.scale)),
        degrees_of_freedom=float(settled.freedom),
        innovations=checks.readonly(v / np.sqrt(F)),
        tried=tuple(tried),
    )
