"""The reach of the upper bounds: the window for (C.24), its bound, and the rounds after which it is informative."""

import math
from collections.abc import Callable

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.system import LinearGaussianSystem
from undertow.theory.bounds import bias_factor, bound_terms, model_error_term
from undertow.theory.oracles import random_regret

__all__ = ["conditional_regret_bound", "informative_rounds", "sufficient_window"]

_MOST_DECADES = 20  # beyond 10^20 rounds nobody plays
_LONGEST = 400


def sufficient_window(system: LinearGaussianSystem, rounds: int, bias_factor_known: float, **more: float) -> int | None:
    """Return the smallest s with B_s(n) B_β(s) ≤ **B**_β ((C.24) s_satisfactory); None if none up to 400 has it.

    Examples
    --------
    >>> from undertow import paper_system
    >>> sufficient_window(paper_system(psi=1), 10_000, bias_factor_known=1.0)
    84
    """
    known = checks.number("bias_factor_known", bias_factor_known, least=0)

    def holds(s: int) -> bool:
        factor = bias_factor(system, s)
        return rounds * factor <= known * math.sqrt(more.get("ridge", 1.0)) and (  # B_s(n) is at least n / √λ
            bound_terms(system, s, rounds, **more).B_s * factor <= known
        )

    # ‖A^s‖ falls in the long run, but not at every step, so that no bisection finds the first one.
    return next((s for s in range(_LONGEST + 1) if holds(s)), None)


def conditional_regret_bound(
    system: LinearGaussianSystem,
    window: int,
    rounds: int,
    bias_factor_known: float,
    *,
    confidence: float = 0.1,
    **more: float,
) -> float:
    """Return Corollary 1's bound for a window that satisfies (C.24) ((C.25) regret_bound_OFU_s), as printed.

    k√n B̄_θB̄_u(B̄_b + B̄_e) + √(n p g_Z(δ/n)) **B**_β + 2kn B_β(s) √g_Z(δ/n) + k√(4nB_R² log(1/δ)), with N_{a*} = n. Its
    noise term fails as that of (C.21) does (T3).
    """
    terms = bound_terms(system, window, rounds, confidence=confidence, **more)
    own, known = bias_factor(system, window), checks.number("bias_factor_known", bias_factor_known, least=0)
    if terms.B_s * own > known:
        raise InvalidInputError(
            f"window: expected B_s(n) B_β(s) of at most {known:g}, got {terms.B_s * own:.3g} with s = {window}; take "
            f"sufficient_window, or corrected_regret_bound"
        )
    n, k, p = rounds, system.arm_count, system.context_dim * window + 1
    bias = math.sqrt(n * p) * terms.state_size * known + 2 * k * n * terms.bias
    noise = k * math.sqrt(4 * n * terms.noise_bound**2 * math.log(1 / confidence))
    return model_error_term(terms, n, k, "noise") + bias + noise


def informative_rounds(
    bound: Callable[..., float], system: LinearGaussianSystem, window: int, **more: float | str
) -> float:
    """Return the first power of ten at which a bound is below the regret of choosing at random; infinity if none is.

    Powers up to 10^20 are tried. `bound` takes the system, the window and the rounds, as `printed_regret_bound` does.

    Examples
    --------
    >>> from undertow import paper_system
    >>> from undertow.theory import corrected_regret_bound
    >>> informative_rounds(corrected_regret_bound, paper_system(psi=1), 10)
    inf
    """
    useless = random_regret(system).value
    for n in (10**decade for decade in range(_MOST_DECADES + 1)):
        if bound(system, window, n, **more) < n * useless:
            return float(n)
    return math.inf
