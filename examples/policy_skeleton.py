"""A compiled policy to copy: rename it, and follow the comments. docs/own_policy.md explains every part.

    python examples/policy_skeleton.py     # tries the contract

As it stands: the largest discounted mean + width; arms without a reward come first.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from undertow import InvalidInputError
from undertow.compiled import Common, FloatArray, Layout, Record, best_arm, compile_loop, inlined
from undertow.contracts import check_policy
from undertow.live import Capabilities, LivePolicy, register


class Settings(Record):
    """Numbers for the steps: parameters under their own names, and numbers derived from them."""

    discount: float
    exploration: float


class MyState(NamedTuple):
    """All that the policy remembers; an axis counts "k" arms, "m" context entries, "q" features, "p" of a memory."""

    common: Common  # always first: sizes, order, closed, forecast, width, memory
    settings: Settings
    counts: Annotated[FloatArray, "k"]
    sums: Annotated[FloatArray, "k"]


@inlined
def decide(own: MyState, features: FloatArray, draws: FloatArray) -> int:
    """Write forecast and width of every arm, and return one that is open."""
    forecast, width = own.common.forecast, own.common.width
    for a in range(len(forecast)):
        known = own.counts[a] > 0.0
        forecast[a] = own.sums[a] / own.counts[a] if known else 0.0
        width[a] = own.settings.exploration / math.sqrt(own.counts[a]) if known else math.inf
    return best_arm(own.common)  # the largest forecast + width − known cost


@inlined
def played(own: MyState, arm: int) -> None:
    """Count the arm of this round, −1 if none. Omit this step if a round changes nothing."""
    for a in range(len(own.counts)):
        own.counts[a] *= own.settings.discount
        own.sums[a] *= own.settings.discount


@inlined
def learn(own: MyState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Learn the reward of a decision that is `age` rounds old; the other entries of `rewards` are unknown."""
    weight = own.settings.discount**age
    own.counts[arm] += weight
    own.sums[arm] += weight * rewards[arm]


@register("my-policy", citation="citation")  # the name in save files, plans and `make`
@dataclass(kw_only=True, eq=False, repr=False)
class MyPolicy(LivePolicy):  # or ContextPolicy, with `observe` among the steps and uses_contexts=True among the claims
    """Describe the policy in one line.

    Parameters
    ----------
    discount
        In (0, 1].
    exploration
        Factor of the width, at least 0.
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        late_rewards_count_alike=True
    )  # declare what is true; the contract tests it
    loop = compile_loop(__name__, Layout(MyState), decide=decide, learn=learn, played=played)

    discount: float = 0.99
    exploration: float = 1.0

    def _sizes(self) -> dict[str, int]:
        """Check the parameters, and return further sizes: {"p": 3} for a memory of three numbers."""
        if not 0 < self.discount <= 1:
            raise InvalidInputError(f"discount: expected above 0 and at most 1, got {self.discount}")
        if not self.exploration >= 0:
            raise InvalidInputError(f"exploration: expected at least 0, got {self.exploration}")
        return {}

    def _begin(self, own: MyState) -> None:
        """Write the initial state; the rest is 0."""
        own.settings.discount, own.settings.exploration = self.discount, self.exploration

    # If the policy is random: `_draw` for the numbers, `_probability` for the probability of an arm. If a new arm
    # needs more than zeros after the others: `_init_arm` and `_index_map`.


if __name__ == "__main__":
    for rule in check_policy(lambda system, rng: MyPolicy(arms=system.arm_count, rng=rng)):
        print(rule)
