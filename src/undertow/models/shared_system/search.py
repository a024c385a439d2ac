"""The order of a shared system, found by challenge: models compete by likelihood minus effective degrees of freedom."""

import math
from typing import NamedTuple

import numpy as np

from undertow.models.shared_system.descent import fit_model
from undertow.models.shared_system.score import information_size, store_size, stored_belief, stored_innovations
from undertow.models.shared_system.vector import MAX_ORDER, VectorModel, cold_model, grown_model
from undertow.support.checks import FloatArray

__all__ = ["Attempt", "Search", "cost", "expected_cost", "fit_one"]

EM_STEPS = 3
COLD, GROWN, WARM, LATE = 20, 16, 10, 5  # evaluations of the likelihood; the last for at least LONG rounds
LONG = 2000
STARTS = 3  # random starts of a challenge
SKETCH, PROOF = 300, 600  # rounds for the choice among them, and for the decision of a challenge
FIRST_ORDER = 2
MOST = 8  # challenges in one refit
CYCLE = (  # name of a challenge, its order relative to the model in use, whether from scratch
    ("grown", 1, False),
    ("cold", 0, True),
    ("grown by two", 2, False),
    ("cold, one more", 1, True),
    ("grown", 1, False),
    ("cold, one less", -1, True),
)
LEAST = 2  # challenges of every refit, whatever the budget


class Attempt(NamedTuple):
    """One model of a search: its start, its order, its fit and its cost."""

    start: str
    order: int
    log_likelihood: float
    freedom: float
    evaluations: int


def cost(d: int, m: int, k: int, rounds: int, evaluations: int) -> float:
    """Return the work of a fit in units of about a microsecond: a formula, so that a seed fixes the computation."""
    return 60.0 + evaluations * (3.0 + 0.001 * (m + k) * (d + 1) ** 3 + rounds * (0.11 + 0.03 * (m + 1) + 0.001 * d**3))


def expected_cost(d: int, m: int, k: int, rounds: int, budget: float) -> float:
    """Return the approximate cost of `challenge` from a model of order d, 0 for none."""
    size = d or FIRST_ORDER
    warm = WARM if rounds < LONG else LATE
    sketches = STARTS * cost(size, m, k, min(rounds, SKETCH), EM_STEPS + 1)
    price = sketches + cost(size, m, k, min(rounds, PROOF), COLD)
    return cost(size, m, k, rounds, warm) + min(MOST * price, max(budget, LEAST * price))


class Search(NamedTuple):
    """A log to explain: a standardized table, its sizes, and room to work in."""

    table: FloatArray
    m: int
    k: int
    store: FloatArray
    information: FloatArray
    inverse: FloatArray

    @classmethod
    def on(cls, table: FloatArray, m: int, k: int) -> "Search":
        """Return a search on a table."""
        size = information_size(m, k)
        return cls(table, m, k, np.empty(store_size(len(table), m)), np.empty(size), np.empty(size))

    def belief(self) -> tuple[FloatArray, FloatArray]:
        """Return ẑ (8,) and P (8, 8) after the last round, of the likelihood computed last."""
        return stored_belief(self.store, len(self.table) - 1, self.m)

    def innovations(self) -> tuple[FloatArray, FloatArray]:
        """Return each context entry, then the reward, minus its forecast, and its variance, each (n, m + 1).

        Both are NaN without observations, and belong to the likelihood computed last.
        """
        n, m = len(self.table), self.m
        v, F = stored_innovations(self.store, n, m)
        seen = ~np.isnan(self.table[:, [*range(m), m + 1]])
        seen[:, m] &= self.table[:, m] >= 0
        return np.where(seen, v, math.nan), np.where(seen, F, math.nan)

    def last(self, rounds: int) -> "Search":
        """Return a search on the last rounds only; itself if there are no more."""
        return self if len(self.table) <= rounds else self._replace(table=self.table[-rounds:])


def fit_one(search: Search, start: VectorModel, *, em_steps: int, evaluations: int) -> tuple[VectorModel, int]:
    """Return the model fitted from a start, with likelihood −∞ on failure, and the number of evaluations."""
    vector, prior = start.vector.copy(), start.prior.copy()
    d = start.order
    log_likelihood, freedom, used = fit_model(
        vector,
        d,
        search.m,
        search.k,
        search.table,
        prior,
        em_steps,
        evaluations,
        search.store,
        search.information,
        search.inverse,
    )
    if not np.isfinite(log_likelihood) or not np.isfinite(vector).all():
        return start._replace(log_likelihood=-np.inf), used
    return VectorModel(d, vector, prior, log_likelihood, freedom), used


def challenge(
    search: Search,
    model: VectorModel | None,
    rng: np.random.Generator,
    budget: float,
    turn: int = 0,
    order: int | None = None,
) -> tuple[VectorModel, float, int, list[Attempt]]:
    """Refit the model in use, then spend the budget on challengers.

    Returns the best model, the cost, the next turn and all models tried. A challenge begins with several random starts,
    and a few steps on the last rounds pick one. The descent from it uses more rounds, and the winner there by
    likelihood minus degrees of freedom is fitted to all of them. The cycle of challenges continues where the last refit
    left it. With an `order`, only models of that order compete.
    """
    m, k, n = search.m, search.k, len(search.table)
    tried: list[Attempt] = []
    spent = 0.0

    def attempt(name: str, where: Search, start: VectorModel, em_steps: int, evaluations: int) -> VectorModel:
        nonlocal spent
        fitted, used = fit_one(where, start, em_steps=em_steps, evaluations=evaluations)
        spent += cost(start.order, m, k, len(where.table), used)
        tried.append(Attempt(name, start.order, fitted.log_likelihood, fitted.freedom, used))
        return fitted

    sketch, proof = search.last(SKETCH), search.last(PROOF)
    warm = WARM if n < LONG else LATE
    best = None if model is None else attempt("warm", search, model, 0, warm)
    if best is None or not np.isfinite(best.log_likelihood):
        starts = [cold_model(order or FIRST_ORDER, m, k, rng) for _ in range(STARTS)]
        first = max((attempt("start", sketch, s, EM_STEPS, EM_STEPS + 1) for s in starts), key=_criterion)
        best = attempt("cold", search, first, 0, COLD)
    local = best if proof is search else attempt("incumbent", proof, best, 0, 1)
    for bout in range(MOST):
        d = local.order
        name, change, cold = CYCLE[turn % len(CYCLE)] if order is None else ("cold", 0, True)
        turn += 1
        size = d + change
        if not 1 <= size <= MAX_ORDER or (n < 4 * size and order is None):
            continue
        evaluations = COLD if cold else GROWN
        price = STARTS * cost(size, m, k, len(sketch.table), EM_STEPS + 1)
        if bout >= LEAST and spent + price + cost(size, m, k, len(proof.table), evaluations) > budget:
            turn -= 1
            break
        starts = [cold_model(size, m, k, rng) if cold else grown_model(local, change, m, k, rng) for _ in range(STARTS)]
        first = max((attempt("start", sketch, s, EM_STEPS, EM_STEPS + 1) for s in starts), key=_criterion)
        challenger = attempt(name, proof, first, 0, evaluations)
        if challenger.criterion > local.criterion:
            if proof is not search:
                whole = attempt("winner", search, challenger, 0, warm)
                if not whole.criterion > best.criterion:
                    continue
                best = whole
            local = challenger
    return (local if proof is search else best), spent, turn, tried


def _criterion(model: VectorModel) -> float:
    return model.criterion
