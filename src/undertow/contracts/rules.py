"""The behaviour of a policy, whatever its implementation: one function per rule."""

import math
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from undertow.contracts.trial import Trial, is_fitted, require, rule
from undertow.policies import Decision, from_bytes, load
from undertow.simulation import simulate
from undertow.system import LinearGaussianSystem
from undertow.trajectory import Trajectory


@rule("same seed, same arms")
def _same_seed(trial: Trial) -> None:
    first, second = (simulate(trial.make(3), trial.path) for _ in range(2))
    same = bool((first.arms == second.arms).all())
    require(
        same,
        "two policies with the same seed chose different arms; use random numbers of the policy's own stream only",
    )


@rule("simulation leaves the policy and the data alone")
def _nothing_changed(trial: Trial) -> None:
    policy = trial.make()
    first, second = (simulate(policy, trial.path) for _ in range(2))
    require(bool((first.arms == second.arms).all()), "a second simulation of the same policy chose other arms")


@rule("rewards do not matter if unused", "uses no rewards")
def _rewards_unused(trial: Trial) -> None:
    other = Trajectory(trial.path.contexts, 1.0 - 2.0 * trial.path.rewards)
    first, second = (simulate(trial.make(3), path).arms for path in (trial.path, other))
    same = first == second
    require(
        bool(same.all()),
        f"other rewards, other arms from round {int(np.argmin(same))} on; claim that they count",
    )


@rule("simulated equals by hand", "live")
def _by_hand(trial: Trial) -> None:
    run = simulate(trial.make(4), trial.path, record=["forecasts", "widths"])
    assert run.forecasts is not None
    assert run.widths is not None
    for t, decision in enumerate(trial.drive(trial.make(4))):
        require(decision.arm == run.arms[t], f"round {t}: {decision.arm} by hand, {run.arms[t]} simulated")
        for name, own, recorded in (
            ("forecast", decision.forecast, run.forecasts[t]),
            ("width", decision.width, run.widths[t]),
        ):
            require(np.array_equal(own, recorded), f"round {t}: {name} {own} by hand, {recorded} simulated")


@rule("a reward can only be learned once", "live")
def _learned_once(trial: Trial) -> None:
    """Refuse a second reward for a decision; a repeated one changes nothing, or is refused by unregistered policies."""
    policy, decision = trial.begun()
    policy.learn(decision, 1.0)
    trial.changes_nothing(policy, lambda: policy.learn(decision, 1.0), "a reward given twice")
    trial.refuses(policy, lambda: policy.learn(decision, 2.0), "another reward for the same decision")
    trial.refuses(policy, lambda: policy.learn("no such decision", 1.0), "a reward for a decision never made")


@rule("a rejected call changes nothing", "live")
def _rejected(trial: Trial) -> None:
    for reward in (math.nan, math.inf, "much", None):
        policy, decision = trial.begun()
        trial.refuses(policy, lambda p=policy, d=decision, r=reward: p.learn(d, r), f"the reward {reward!r}")  # type: ignore[misc]
    if trial.sees_contexts:
        for context in (np.full(trial.system.context_dim, math.inf), np.zeros(trial.system.context_dim + 1), "warm"):
            policy, _ = trial.begun()
            trial.refuses(policy, lambda p=policy, c=context: p.observe(c), f"the context {context!r}")  # type: ignore[misc]


@rule("forecast changes nothing", "live")
def _forecast(trial: Trial) -> None:
    policy, twin = trial.make(1), trial.make(1)
    if not hasattr(policy, "forecast"):
        return
    for first, second in zip(trial.drive(policy, ask=True), trial.drive(twin), strict=True):
        require(first.arm == second.arm, f"round {second.round}: a call of forecast changed the choice")


@rule("late rewards are taken", "live")
def _late(trial: Trial) -> None:
    policy = trial.make()
    waiting: list[tuple[Decision, float]] = []
    rng = np.random.default_rng(0)
    for t in range(100):
        decision = trial.step(policy, t, learn=False)
        waiting.append((decision, trial.reward(t, decision)))
        rng.shuffle(waiting)
        while len(waiting) > 5:
            policy.learn(*waiting.pop())
        require(bool(np.isfinite(decision.forecast).all()), f"round {t}: a forecast is not finite")


@rule("a late reward counts as an early one", "ours", "live", "late_rewards_count_alike")
def _late_counts_alike(trial: Trial) -> None:
    """Play the same arms with two policies, one of which learns 1 to 6 rounds late (60 rounds, seed 0)."""
    prompt, tardy, rng = trial.make(1), trial.make(1), np.random.default_rng(0)
    waiting: list[tuple[Decision, float]] = []
    for t in range(60):
        only = [int(rng.integers(trial.arms))]
        trial.step(prompt, t, available=only)
        decision = trial.step(tardy, t, learn=False, available=only)
        waiting.append((decision, trial.reward(t, decision)))
        while len(waiting) > (rng.integers(1, 7) if t < 59 else 0):
            tardy.learn(*waiting.pop(0))
    early, late = prompt.forecast().forecast, tardy.forecast().forecast
    require(
        np.allclose(late, early, rtol=1e-6, atol=1e-9),
        f"the forecast is {late} with late rewards, {early} with immediate ones; `learn` gets the age "
        f"of a reward in rounds, and the memory of its decision",
    )


@rule("where fits are made does not matter to a simulation", "ours", "live", "fits")
def _refit(trial: Trial) -> None:
    """Play 60 rounds with fits in the background, by hand, with late rewards; then simulate with every `refit`."""
    policy, waiting = trial.make(1, refit="background"), list[tuple[Decision, float]]()
    for t in range(60):
        decision = trial.step(policy, t, learn=False)
        require(bool(np.isfinite(decision.forecast).all()), f"round {t}: a forecast is not finite")
        waiting.append((decision, trial.reward(t, decision)))
        if t % 3:
            policy.learn(*waiting.pop(0))
    runs = {refit: simulate(trial.make(1, refit=refit), trial.start(60)) for refit in ("auto", "inline", "background")}
    for refit, run in runs.items():
        same = bool((run.arms == runs["inline"].arms).all())
        require(same, f"a simulation with refit={refit!r} chose other arms than one with fits inline")


@rule("many rewards together are learned as one by one", "ours", "live")
def _learn_many(trial: Trial) -> None:
    """Learn twelve rewards after 20 rounds, in one call and one by one; a list with an invalid one changes nothing."""
    together, apart = trial.make(1), trial.make(1)
    decisions = [[trial.step(policy, t, learn=t < 8) for t in range(20)][8:] for policy in (together, apart)]
    rewards = [trial.reward(decision.round, decision) for decision in decisions[0]]
    for wrong in ([*decisions[0], 10**9], [*decisions[0], decisions[0][0]]):
        trial.refuses(together, lambda w=wrong: together.learn_many(w, [*rewards, 1.0]), "a list with a wrong decision")  # type: ignore[misc]
    trial.refuses(together, lambda: together.learn_many(decisions[0], rewards[1:]), "a list with a reward too few")
    together.learn_many(decisions[0], rewards)
    for decision, reward in zip(decisions[1], rewards, strict=True):
        apart.learn(decision, reward)
    require(together.pending == apart.pending == 0, f"{together.pending} of 12 rewards are missing")
    for t in range(20, 30):
        first, second = trial.step(together, t), trial.step(apart, t)
        same = first.arm == second.arm and np.array_equal(first.forecast, second.forecast)
        require(same, f"round {t}: {first} after rewards in one call, {second} after one by one")


@rule("names of arms do not matter", "ours", "live")
def _names(trial: Trial) -> None:
    named = trial.make(2, arms=[f"arm {a} of many" for a in range(trial.arms)])
    same = (simulate(trial.make(2), trial.path).arms == simulate(named, trial.path).arms).all()
    require(bool(same), "other names, other choices")


@rule("propensities are those of the draws", "ours", "live")
def _propensities(trial: Trial) -> None:
    """Explore with probability 0.5, seeds 0 to 19, 40 rounds each; seed 0 is also simulated.

    Policies that fit models have seeds 0 to 4: fits take long, and their propensities use the same random numbers.
    """
    decisions = []
    for seed in range(5 if is_fitted(trial.make(0)) else 20):
        policy = trial.make(seed, explore=0.5, rng=seed)
        decisions += [trial.step(policy, t) for t in range(40)]
    for t, arm in enumerate(simulate(trial.make(0, explore=0.5, rng=0), trial.start(40)).arms):
        require(decisions[t].arm == arm, f"round {t} with explore=0.5: {decisions[t].arm} by hand, {arm} simulated")
    for arm in range(trial.arms):
        _require_balance(decisions, arm, "with explore=0.5")
    _require_whole(decisions)


def _require_whole(decisions: Sequence[Decision]) -> None:
    """Require that the probabilities of all arms add up to 1, include the propensity, and match the frequencies.

    For every arm, plays minus probabilities are 0 on average, within 4 standard errors.
    """
    chances = np.array([decision.propensities for decision in decisions])
    played = np.array([decision.arm for decision in decisions])
    own = np.array([decision.propensity for decision in decisions])
    sums = np.abs(chances.sum(axis=1) - 1).max()
    require(bool(sums < 1e-7), f"the probabilities of all arms add up to 1 to within {sums:.2g}")
    off = np.abs(chances[np.arange(len(own)), played] - own).max()
    require(bool(off < 1e-12), f"propensity and propensities[arm] differ by {off:.2g}")
    rest = (np.eye(chances.shape[1])[played] - chances).sum(axis=0)
    error = np.sqrt((chances * (1 - chances)).sum(axis=0))
    require(
        bool((np.abs(rest) <= 4 * error + 1e-6).all()),
        f"arms were played {rest} times more often than the probabilities of all arms say (± {error})",
    )


@rule("propensities are those of the policy itself", "live", "draws")
def _own_propensities(trial: Trial) -> None:
    """Compare policies with seeds 0 to 119 that have played the same arms so far, if there are at least 50."""
    alike: dict[tuple[int, ...], list[Decision]] = {}
    for seed in range(120):
        policy = trial.make(seed)
        past: tuple[int, ...] = ()
        for t in range(trial.arms + 3):
            decision = trial.step(policy, t)
            alike.setdefault(past, []).append(decision)
            past += (decision.arm,)
    for past, decisions in alike.items():
        for arm in {decision.arm for decision in decisions if len(decisions) >= 50}:
            _require_balance(decisions, arm, f"after the arms {past}" if past else "in the first round")


def _require_balance(decisions: Sequence[Decision], arm: int, when: str) -> None:
    """Require that 1{arm = a} / propensity is 1 on average, within 4 standard errors."""
    p = np.array([decision.propensity for decision in decisions])
    require(bool(((p > 0) & (p < 1 + 1e-9)).all()), f"propensities go from {p.min()} to {p.max()}, expected in (0, 1]")
    weights = np.array([decision.arm == arm for decision in decisions]) / p
    spread = (weights * (1 / p - 1)).mean() / max(min(weights.mean(), 1), 1e-9)  # of one weight, squared
    error = math.sqrt(spread / len(p))
    require(
        abs(weights.mean() - 1) <= 4 * error + 1e-9,
        f"{when}, arm {arm} was played {weights.mean():.2f} times as often as its propensities say (± {error:.2f}); a "
        f"propensity is the probability of the arm before sampling; registered policies compute it in `_probability`",
    )


@rule("save and load continue", "ours", "live")
def _saved(trial: Trial) -> None:
    policy, twin = trial.make(6), trial.make(6)
    with tempfile.TemporaryDirectory() as folder:
        for t in range(60):
            if t in (0, 7, 40):
                path = Path(folder) / "policy"
                policy.save(path)
                policy = load(path)
            if t == 23:
                policy = from_bytes(policy.to_bytes())
            learn = t % 3 > 0
            first, second = trial.step(policy, t, learn=learn), trial.step(twin, t, learn=learn)
            same = first.arm == second.arm and np.array_equal(first.forecast, second.forecast)
            require(same, f"round {t}: {first} after loading, {second} without")


@rule("memory is bounded", "ours", "live")
def _bounded(trial: Trial) -> None:
    small = trial.make(max_pending=5)
    first = trial.step(small, 0, learn=False)
    for t in range(1, 40):
        trial.step(small, t, learn=False)
    require(small.pending == 5, f"{small.pending} decisions are pending, although max_pending is 5")
    least = small.parts.player.state.nbytes
    require(small.parts.nbytes >= least, f"nbytes is {small.parts.nbytes}, and the state alone has {least}")
    trial.refuses(small, lambda: small.learn(first, 1.0), "a reward for a forgotten decision")


@rule("only available arms are played", "ours", "live")
def _available(trial: Trial) -> None:
    policy, k = trial.make(1), trial.arms
    for t in range(40):
        only = t % k
        decision = trial.step(policy, t, available=[only])
        require(decision.arm == only, f"round {t}: arm {decision.arm} was played, and only {only} was available")
    for given in ([], [k], ["no such arm"]):
        policy, _ = trial.begun(decided=False)
        trial.refuses(policy, lambda p=policy, g=given: p.decide(available=g), f"available={given}")  # type: ignore[misc]


@rule("arms come and go", "ours", "live")
def _arms_change(trial: Trial) -> None:
    policy = trial.make(1)
    for t in range(30):
        decision = trial.step(policy, t, learn=t < 29)
    name = decision.name
    if trial.arms > 1:
        policy.retire_arm(name)
        policy.learn(decision, 0.0)
        played = {trial.step(policy, t).name for t in range(30, 60)}
        require(name not in played, f"{name!r} was played after it had been retired")
        policy.add_arm(name)
    if not trial.capabilities.needs_system:
        policy.add_arm("a new arm")
        decision = trial.step(policy, 60, learn=False, available=["a new arm"])
        policy.learn(decision, 0.0)
        require(policy.arm_count == trial.arms + 1, "an arm was added, and their number is as before")


@rule("a new arm leaves the others alone", "ours", "live", "takes new arms")
def _newcomer(trial: Trial) -> None:
    """Add an arm after 40 rounds, in which arm a earned 5 (a + 1) standard deviations more than usual.

    Forecasts of the others stay, to six digits; after a fit, to half a standard deviation.
    """
    policy, spread = trial.make(1), float(trial.path.rewards.std())
    for t in range(40):
        decision = trial.step(policy, t, learn=False, available=[t % trial.arms])
        policy.learn(decision, trial.reward(t, decision) + 5 * (decision.arm + 1) * spread)
    before = policy.forecast().forecast
    policy.add_arm("a new arm")
    after = policy.forecast().forecast[: trial.arms]
    require(
        np.allclose(after, before, rtol=1e-6, atol=spread / 2 if is_fitted(policy) else 1e-9),
        f"with one more arm, the forecast of the others went from {before} to {after}; arrays with an axis k "
        f"are carried over automatically, `_index_map` and `_init_arm` do the rest",
    )


@rule("costs are negative rewards", "ours", "live")
def _costs(trial: Trial) -> None:
    policy, known = trial.make(2), {}
    if trial.capabilities.needs_system:
        symbols = trial.system.to_dict()
        for name in ("arms", "reward_offset"):
            symbols[name] = -np.asarray(symbols[name])
        known["system"] = LinearGaussianSystem.from_dict(symbols)
    thrifty = trial.make(2, minimize=True, **known)
    paid = Trajectory(trial.path.contexts, -trial.path.rewards)
    same = simulate(policy, trial.path).arms == simulate(thrifty, paid).arms
    require(bool(same.all()), f"costs are not treated as negative rewards from round {int(np.argmin(same))} on")


@rule("threads wait for one another", "ours", "live")
def _threads(trial: Trial) -> None:
    policy = trial.make(2)
    decisions = [trial.step(policy, t, learn=False) for t in range(40)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda decision: policy.learn(decision, 1.0), decisions))
    require(policy.pending == 0, f"{policy.pending} of 40 rewards that came on four threads are missing")


@rule("arms can be reordered", "ours", "deterministic")
def _reordered(trial: Trial) -> None:
    k = trial.arms
    turn = np.roll(np.arange(k), 1)  # arm a of the new order is arm turn[a] of the old
    fields = trial.system.to_dict()
    for name in ("arms", "reward_noise", "reward_offset"):
        fields[name] = np.asarray(fields[name])[turn]
    policy = trial.make(0, LinearGaussianSystem.from_dict(fields))
    policy = policy.parts.for_run(0, order=np.argsort(turn))  # initial rounds and ties in the old order
    path = Trajectory(trial.path.contexts, trial.path.rewards[:, turn])
    same = turn[simulate(policy, path).arms] == simulate(trial.make(0), trial.path).arms
    require(bool(same.all()), f"reordered arms were chosen differently from round {int(np.argmin(same))} on")
