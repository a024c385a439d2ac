"""The rules that every policy keeps, shipped so that whoever writes one can check it.

    check_policy(lambda system, rng: MyPolicy(arms=system.arm_count, context_dim=system.context_dim, rng=rng))

A rule that a policy's claims exempt it from is not tried. The first rule that is broken raises `BrokenContractError`.
"""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from undertow.errors import UndertowError
from undertow.policies import Claims, Decision, FullInformationOracle, LivePolicy, Policy, Random, load
from undertow.simulation import Run, simulate
from undertow.system import LinearGaussianSystem, paper_system
from undertow.trajectory import Trajectory

__all__ = ["BrokenContractError", "check_policy"]

Factory = Callable[[LinearGaussianSystem, int], Policy]


class BrokenContractError(UndertowError, AssertionError):
    """A policy broke a rule of the contract; the message says which and how."""


def check_policy(factory: Factory, *, system: LinearGaussianSystem | None = None) -> list[str]:
    """Try every rule that applies to the policy; return the names of those tried.

    Parameters
    ----------
    factory
        Makes an unused policy for a system, given a seed. Policies that do not know the system take from it only the
        numbers of arms and context entries.
    system
        Where to try the policy; the paper's system at psi = 1 by default.

    Examples
    --------
    >>> from undertow.policies import UCB
    >>> "same seed, same arms" in check_policy(lambda system, rng: UCB(arms=system.arm_count, rng=rng))
    True
    """
    rules = _Rules(factory, paper_system(1) if system is None else system)
    tried = []
    for name, rule in rules.applicable():
        try:
            rule()
        except BrokenContractError as error:
            raise BrokenContractError(f"{name}: {error}") from error
        tried.append(name)
    return tried


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise BrokenContractError(message)


class _Rules:
    """One method a rule; each raises if the policy breaks it."""

    def __init__(self, factory: Factory, system: LinearGaussianSystem) -> None:
        self.factory, self.system = factory, system
        policy = factory(system, 0)
        _require(isinstance(policy, Policy), f"expected decide, learn and observe, got {policy!r}")
        self.claims: Claims = getattr(policy, "claims", Claims())
        self.ours = isinstance(policy, LivePolicy)
        self.path = system.sample(300, rng=5)

    def make(self, seed: int = 0, system: LinearGaussianSystem | None = None) -> Any:
        return self.factory(system or self.system, seed)

    def applicable(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Every rule that the claims do not exempt the policy from."""
        live = not self.claims.simulates_only
        yield "same seed, same arms", self.same_seed
        yield "simulation leaves the policy and the data alone", self.nothing_changed
        if live:
            yield "simulated equals by hand", self.by_hand
            yield "a reward can only be learned once", self.learned_once
            yield "a rejected call changes nothing", self.rejected
            yield "forecast changes nothing", self.forecast
            yield "late rewards are taken", self.late
        if self.ours and live:
            yield "names of arms do not matter", self.names
            yield "parameters survive construction", self.parameters
            yield "save and load continue", self.saved
            yield "memory is bounded", self.bounded
            yield "only available arms are played", self.available
            yield "arms come and go", self.arms_change
            yield "exploration is simulated as it is lived, and its probability is known", self.explores
            yield "costs are negative rewards", self.costs
            yield "threads wait for one another", self.threads
        if self.ours and self.claims.deterministic:
            yield "arms can be reordered", self.reordered
        tells = self.system.context_dim > 0 and self.system.arm_count > 1
        if self.claims.uses_contexts and tells:
            yield "better than Random", self.better_than_random
        if self.claims.handles_missing_contexts and tells:
            yield "better than Random with missing contexts", self.better_with_gaps
        yield "not better than everything known", self.not_too_good

    # Rules

    def same_seed(self) -> None:
        first, second = (simulate(self.make(3), self.path) for _ in range(2))
        _require(bool((first.arms == second.arms).all()), "two policies with the same seed chose different arms")

    def nothing_changed(self) -> None:
        policy = self.make()
        first, second = (simulate(policy, self.path) for _ in range(2))
        _require(bool((first.arms == second.arms).all()), "a second simulation of the same policy chose other arms")

    def by_hand(self) -> None:
        run = simulate(self.make(4), self.path, record=["forecasts", "widths"])
        assert run.forecasts is not None
        assert run.widths is not None
        for t, decision in enumerate(self.drive(self.make(4))):
            _require(decision.arm == run.arms[t], f"round {t}: {decision.arm} by hand, {run.arms[t]} simulated")
            for name, own, recorded in (
                ("forecast", decision.forecast, run.forecasts[t]),
                ("width", decision.width, run.widths[t]),
            ):
                _require(np.array_equal(own, recorded), f"round {t}: {name} {own} by hand, {recorded} simulated")

    def learned_once(self) -> None:
        policy, decision = self.begun()
        policy.learn(decision, 1.0)
        self.refuses(policy, lambda: policy.learn(decision, 1.0), "a reward given twice")
        self.refuses(policy, lambda: policy.learn(10**9, 1.0), "a reward for a decision never made")

    def rejected(self) -> None:
        for reward in (math.nan, math.inf, "much", None):
            policy, decision = self.begun()
            self.refuses(policy, lambda p=policy, d=decision, r=reward: p.learn(d, r), f"the reward {reward!r}")  # type: ignore[misc]
        if self.sees_contexts:
            for context in (np.full(self.system.context_dim, math.inf), np.zeros(self.system.context_dim + 1), "warm"):
                policy, _ = self.begun()
                self.refuses(policy, lambda p=policy, c=context: p.observe(c), f"the context {context!r}")  # type: ignore[misc]

    def forecast(self) -> None:
        policy, twin = self.make(1), self.make(1)
        if not hasattr(policy, "forecast"):
            return
        for first, second in zip(self.drive(policy, ask=True), self.drive(twin), strict=True):
            _require(first.arm == second.arm, f"round {second.round}: asking for a forecast changed the choice")

    def late(self) -> None:
        policy = self.make()
        waiting: list[tuple[Decision, float]] = []
        rng = np.random.default_rng(0)
        for t in range(100):
            decision = self.step(policy, t, learn=False)
            waiting.append((decision, float(self.path.rewards[t, decision.arm])))
            rng.shuffle(waiting)
            while len(waiting) > 5:
                policy.learn(*waiting.pop())
            _require(bool(np.isfinite(decision.forecast).all()), f"round {t}: a forecast is not finite")

    def names(self) -> None:
        policy = self.make(2)
        named = type(policy)(**(policy.parameters | {"arms": [f"arm {a} of many" for a in range(policy.arm_count)]}))
        same = (simulate(policy, self.path).arms == simulate(named, self.path).arms).all()
        _require(bool(same), "other names, other choices")

    def parameters(self) -> None:
        policy = self.make(2)
        again = type(policy)(**policy.parameters)
        _require(again.parameters == policy.parameters, f"{policy.parameters} became {again.parameters}")
        known = {field.name for field in dataclasses.fields(policy)}
        _require(known == policy.parameters.keys(), "parameters are not the constructor's arguments")

    def saved(self) -> None:
        policy, twin = self.make(6), self.make(6)
        with tempfile.TemporaryDirectory() as folder:
            for t in range(60):
                if t in (0, 7, 40):
                    path = Path(folder) / "policy"
                    policy.save(path)
                    policy = load(path)
                learn = t % 3 > 0
                first, second = self.step(policy, t, learn=learn), self.step(twin, t, learn=learn)
                same = first.arm == second.arm and np.array_equal(first.forecast, second.forecast)
                _require(same, f"round {t}: {first} after loading, {second} without")

    def bounded(self) -> None:
        policy = self.make()
        small = type(policy)(**(policy.parameters | {"max_pending": 5}))
        first = self.step(small, 0, learn=False)
        for t in range(1, 40):
            self.step(small, t, learn=False)
        _require(small.pending == 5, f"{small.pending} decisions wait, although max_pending is 5")
        self.refuses(small, lambda: small.learn(first, 1.0), "a reward for a forgotten decision")

    def available(self) -> None:
        policy, k = self.make(1), self.system.arm_count
        for t in range(40):
            only = t % k
            decision = self.step(policy, t, available=[only])
            _require(decision.arm == only, f"round {t}: arm {decision.arm} was played, and only {only} was available")
        for given in ([], [k], ["no such arm"]):
            policy, _ = self.begun(decided=False)
            self.refuses(policy, lambda p=policy, g=given: p.decide(available=g), f"available={given}")  # type: ignore[misc]

    def arms_change(self) -> None:
        policy = self.make(1)
        for t in range(30):
            decision = self.step(policy, t, learn=t < 29)
        name = decision.name
        if self.system.arm_count > 1:
            policy.retire_arm(name)
            policy.learn(decision, 0.0)
            played = {self.step(policy, t).name for t in range(30, 60)}
            _require(name not in played, f"{name!r} was played after it had been retired")
            policy.add_arm(name)
        if not self.claims.needs_system:
            policy.add_arm("a new arm")
            decision = self.step(policy, 60, learn=False, available=["a new arm"])
            policy.learn(decision, 0.0)
            _require(
                policy.arm_count == self.system.arm_count + 1, "an arm was added, and there is no more than before"
            )

    def explores(self) -> None:
        policy = self.make(2)
        bold = type(policy)(**(policy.parameters | {"explore": 0.5}))
        run, k = simulate(bold, self.path), self.system.arm_count
        for t in range(60):
            decision = self.step(bold, t)
            _require(decision.arm == run.arms[t], f"round {t}: {decision.arm} by hand, {run.arms[t]} simulated")
            known = 0.5 / k <= decision.propensity * (1 + 1e-9) and decision.propensity <= 1 + 1e-9
            _require(known, f"round {t}: propensity {decision.propensity} with explore=0.5 and {k} arms")

    def costs(self) -> None:
        policy = self.make(2)
        thrifty = type(policy)(**(policy.parameters | {"minimise": True}))
        if self.claims.needs_system:
            symbols = self.system.to_dict()
            for name in ("arms", "reward_offset"):
                symbols[name] = -np.asarray(symbols[name])
            thrifty = type(policy)(**(thrifty.parameters | {"system": LinearGaussianSystem.from_dict(symbols)}))
        paid = Trajectory(self.path.contexts, -self.path.rewards)
        same = simulate(policy, self.path).arms == simulate(thrifty, paid).arms
        _require(bool(same.all()), f"costs are not treated as negative rewards from round {int(np.argmin(same))} on")

    def threads(self) -> None:
        policy = self.make(2)
        decisions = [self.step(policy, t, learn=False) for t in range(40)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda decision: policy.learn(decision, 1.0), decisions))
        _require(policy.pending == 0, f"{policy.pending} of 40 rewards that came on four threads are missing")

    def reordered(self) -> None:
        k = self.system.arm_count
        turn = np.roll(np.arange(k), 1)  # arm a of the new order is arm turn[a] of the old
        fields = self.system.to_dict()
        for name in ("arms", "reward_noise", "reward_offset"):
            fields[name] = np.asarray(fields[name])[turn]
        policy = self.make(0, LinearGaussianSystem.from_dict(fields))
        policy._order[:] = np.argsort(turn)  # start-up and ties in the old order
        path = Trajectory(self.path.contexts, self.path.rewards[:, turn])
        same = turn[simulate(policy, path).arms] == simulate(self.make(0), self.path).arms
        _require(bool(same.all()), f"reordered arms were chosen differently from round {int(np.argmin(same))} on")

    def better_than_random(self) -> None:
        self.compare(Random(arms=self.system.arm_count, rng=1), worse=True, gaps=0.0)

    def better_with_gaps(self) -> None:
        self.compare(Random(arms=self.system.arm_count, rng=1), worse=True, gaps=0.3)

    def not_too_good(self) -> None:
        self.compare(FullInformationOracle(self.system), worse=False, gaps=0.0)

    # Tools

    @property
    def sees_contexts(self) -> bool:
        return self.claims.uses_contexts and self.system.context_dim > 0

    def compare(self, rival: Policy, *, worse: bool, gaps: float) -> None:
        """Compare regrets on 20 shared paths of 1000 rounds (seed 9), to within 3 standard errors."""
        paths = self.system.sample(1000, rng=9, runs=20)
        if gaps:
            holes = np.random.default_rng(9).random(paths.contexts.shape) < gaps
            paths = Trajectory(np.where(holes, np.nan, paths.contexts), paths.rewards, means=paths.means)
        ours, theirs = (_final(simulate(policy, paths)) for policy in (self.make(7), rival))
        lead = theirs - ours if worse else ours - theirs
        error = lead.std(ddof=1) / math.sqrt(len(lead))
        relation = "above that of" if worse else "below that of"
        _require(
            bool(lead.mean() > 3 * error if worse else lead.mean() >= -3 * error),
            f"mean regret {ours.mean():.0f} is {relation} {type(rival).__name__}, {theirs.mean():.0f} (± {error:.0f})",
        )

    def begun(self, *, decided: bool = True) -> tuple[Any, Decision]:
        """Return a policy with some rounds behind it, in the middle of one, and its last decision."""
        policy = self.make()
        for t in range(20):
            decision = self.step(policy, t)
        if getattr(policy, "context_first", False) and self.sees_contexts:
            policy.observe(self.path.contexts[20])
        return policy, policy.decide() if decided else decision

    def refuses(self, policy: Any, call: Callable[[], None], what: str) -> None:
        before = policy._state.copy() if self.ours else None
        try:
            call()
        except (UndertowError, ValueError, LookupError, TypeError):
            unchanged = before is None or np.array_equal(before, policy._state, equal_nan=True)
            _require(unchanged, f"{what} was refused, but changed the policy")
            return
        raise BrokenContractError(f"{what} was taken")

    def step(self, policy: Any, t: int, *, learn: bool = True, ask: bool = False, **how: Any) -> Decision:
        """Play one round of the stored path by hand."""
        first = getattr(policy, "context_first", False)
        if self.sees_contexts and first:
            policy.observe(self.path.contexts[t])
        if ask:
            policy.forecast()
        decision: Decision = policy.decide(**how)
        if learn:
            policy.learn(decision, float(self.path.rewards[t, decision.arm]))
        if self.sees_contexts and not first:
            policy.observe(self.path.contexts[t])
        return decision

    def drive(self, policy: Any, *, ask: bool = False) -> Iterator[Decision]:
        for t in range(self.path.rounds):
            yield self.step(policy, t, ask=ask)


def _final(run: Run) -> Any:
    assert run.regret is not None
    return run.regret[:, -1]
