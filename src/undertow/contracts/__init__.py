"""The rules for every policy, for authors of policies.

    check_policy(lambda system, rng: MyPolicy(arms=system.arm_count, context_dim=system.context_dim, rng=rng))

Rules that do not apply to a policy's capabilities are skipped. The first broken rule raises `BrokenContractError`.
"""

from undertow.contracts import fleets, inside, rules, serving, timing, worth  # noqa: F401 (they register their rules, in this order)
from undertow.contracts.stores import check_store
from undertow.contracts.trial import RULES, BrokenContractError, Factory, Trial
from undertow.example_systems import paper_system
from undertow.system import LinearGaussianSystem

__all__ = ["BrokenContractError", "check_policy", "check_store"]


def check_policy(factory: Factory, *, system: LinearGaussianSystem | None = None) -> list[str]:
    """Try every rule that applies to the policy; return the names of those tried.

    Parameters
    ----------
    factory
        Makes a new policy for a system and a seed. Policies that do not know the system use only its numbers of arms
        and context entries.
    system
        The test system; the paper's at psi = 1 by default.

    Examples
    --------
    >>> from undertow.policies import UCB
    >>> "same seed, same arms" in check_policy(lambda system, rng: UCB(arms=system.arm_count, rng=rng))
    True
    """
    trial = Trial(factory, paper_system(1) if system is None else system)
    applicable = {name: attempt for name, needs, attempt in RULES if needs <= trial.facts}
    for name, attempt in applicable.items():
        try:
            attempt(trial)
        except BrokenContractError as error:
            raise BrokenContractError(f"{name}: {error}") from error
    return list(applicable)
