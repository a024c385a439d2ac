"""Routing: which of four language models should answer, if their quality drifts and their prices are known.

Simulated. Each answer is right or wrong. A model's probability of a right answer is constant, drifts, changes with
occasional releases, follows the hour, or depends on the request; its price is known. Feedback is immediate or late, and
for some requests missing. All policies know the prices, as costs of the choice, and learn the quality.

    python examples/routing.py                 # the table of docs/router.md
    python examples/routing.py --seeds 2       # shorter
"""

import argparse
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lineup import shown
from undertow.contenders import build
from undertow.policies import LivePolicy
from undertow.problems.worlds import ROUTERS

FloatArray = npt.NDArray[np.float64]
MODELS = ("tiny", "small", "large", "largest")
PRICES = (0.0, 0.05, 0.1, 0.2)  # of a request, in units of one right answer
RISEN = (0.0, 0.05, 0.3, 0.2)  # from the middle on, where a price changes
DELAY, NEVER = 200.0, 0.2  # mean number of requests until feedback comes, and the share that has none
SKILL = 1.5  # by how much the log odds of a model depend on what is asked


class Choice(NamedTuple):
    """A decision of Thompson sampling."""

    id: str
    arm: int


class World(NamedTuple):
    """A world: probabilities of a right answer (rounds, k), prices (rounds, k), and delays (rounds,), −1 for never.

    Requests have two features, which matter in one of the worlds only.
    """

    chances: FloatArray
    prices: FloatArray
    delays: npt.NDArray[np.int64]
    features: FloatArray
    answers: FloatArray  # 1 where a model would be right


def world(kind: str, seed: int, rounds: int) -> World:
    """Sample a world."""
    draw = np.random.default_rng([seed, 46])
    base = {"price changes": "still", "late feedback": "drift", "kinds of requests": "still"}.get(kind, kind)
    path = ROUTERS[base].path(seed, rounds)
    assert path.means is not None
    chances, prices = path.means + PRICES, np.tile(PRICES, (rounds, 1))
    features, delays = draw.standard_normal((rounds, 2)), np.zeros(rounds, np.int64)
    if kind == "price changes":
        prices[rounds // 2 :] = RISEN
    if kind == "late feedback":
        delays = np.where(draw.random(rounds) < NEVER, -1, draw.geometric(1 / DELAY, rounds))
    if kind == "kinds of requests":
        odds = np.log(chances / (1 - chances)) + SKILL * features @ draw.standard_normal((2, len(MODELS))) / math.sqrt(
            2
        )
        chances = 1 / (1 + np.exp(-odds))
    return World(chances, prices, delays, features, (draw.random(chances.shape) < chances).astype(float))


class Thompson:
    """Thompson sampling with a discount, in a few lines: undertow's own also computes propensities, which is slow."""

    def __init__(self, discount: float, seed: int) -> None:
        self.discount, self.draw, self.costs = discount, np.random.default_rng([seed, 7]), np.array(PRICES)
        self.parameters: dict[str, Any] = {}
        self.right, self.wrong, self.made = np.ones(len(MODELS)), np.ones(len(MODELS)), 0

    def set_costs(self, costs: Mapping[str, float]) -> None:
        """Change the prices."""
        self.costs = np.array(list(costs.values()))

    def decide(self) -> Choice:
        """Sample each model's probability of a right answer, and discount the past."""
        arm = int((self.draw.beta(self.right, self.wrong) - self.costs).argmax())
        self.right, self.wrong = (1 + self.discount * (weight - 1) for weight in (self.right, self.wrong))
        self.made += 1
        return Choice(f"{self.made - 1}:{arm}", arm)

    def learn(self, id: str, quality: float) -> None:
        """Count an answer, with the weight of its age."""
        made, arm = map(int, id.split(":"))
        weight = self.discount ** (self.made - 1 - made)
        self.right[arm] += weight * quality
        self.wrong[arm] += weight * (1 - quality)


KINDS = {
    "still": "quality stands still",
    "drift": "quality drifts",
    "releases": "a release changes one model now and then",
    "day": "a daily cycle",
    "late feedback": "it drifts; feedback is late or never comes",
    "price changes": "it stands still; one price triples halfway",
    "kinds of requests": "it depends on the request",
}


def line_up(seed: int) -> dict[str, LivePolicy | Thompson]:
    """Return the policies, unused; all know the prices."""
    given: dict[str, Any] = {"arms": list(MODELS), "cost": dict(zip(MODELS, PRICES, strict=True)), "rng": seed}
    learner = given | {"refit": "inline"}  # so that a seed fixes the run
    return {
        "Beta Thompson": Thompson(1.0, seed),
        **{f"discounted Thompson {discount:g}": Thompson(discount, seed) for discount in (0.99, 0.997, 0.999)},
        "LinUCB + features": build("linucb", **given, feature_dim=2, exploration=0.3),
        "StructuralKalman": build("structural-kalman", **learner),
        "Autopilot": build("autopilot", **learner),
        "StructuralKalman + features": build("structural-kalman", **learner, feature_dim=2),
        "Autopilot + features": build("autopilot", **learner, feature_dim=2),
    }


OURS = ("StructuralKalman", "Autopilot", "StructuralKalman + features", "Autopilot + features")


def play(policy: LivePolicy | Thompson, world: World) -> float:
    """Let a policy route every request; return its regret per 100 requests, in right answers minus prices."""
    takes_features = getattr(policy, "feature_dim", 0) > 0
    due: list[tuple[int, str, float]] = []
    prices, lost = world.prices[0], 0.0
    for t in range(len(world.chances)):
        while due and due[0][0] <= t:
            _, id, quality = heapq.heappop(due)
            policy.learn(id, quality)
        if (world.prices[t] != prices).any():
            prices = world.prices[t]
            policy.set_costs(dict(zip(MODELS, prices.tolist(), strict=True)))
        given = (world.features[t],) if takes_features else ()
        decision = policy.decide(*given)
        worth = world.chances[t] - prices
        lost += worth.max() - worth[decision.arm]
        if world.delays[t] >= 0:
            heapq.heappush(due, (t + 1 + int(world.delays[t]), decision.id, float(world.answers[t, decision.arm])))
    return 100 * lost / len(world.chances)


def play_all(kinds: Sequence[str], seeds: Sequence[int], rounds: int) -> dict[str, dict[str, FloatArray]]:
    """Return the regrets of every policy in every kind of world, one per seed."""
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in kinds}
    for kind, seed in shown([(kind, seed) for kind in kinds for seed in seeds], len(seeds) * len(kinds)):
        for label, policy in line_up(seed).items():
            found[kind].setdefault(label, []).append(play(policy, world(kind, seed, rounds)))
    return {kind: {label: np.array(values) for label, values in rows.items()} for kind, rows in found.items()}


def best_of(rows: Mapping[str, FloatArray], start: str) -> str:
    """Return the label with a prefix that has the smallest mean regret."""
    return min((label for label in rows if label.startswith(start)), key=lambda label: float(rows[label].mean()))


def table(found: Mapping[str, Mapping[str, FloatArray]]) -> str:
    """Return a table: a row for each kind of world, a column for each policy, discounts chosen in hindsight."""
    columns: dict[str, Callable[[Mapping[str, FloatArray]], str]] = {
        "Beta Thompson": lambda rows: "Beta Thompson",
        "discounted, best of three": lambda rows: best_of(rows, "discounted"),
        "LinUCB + features": lambda rows: "LinUCB + features",
        **{label: (lambda rows, label=label: label) for label in OURS},  # type: ignore[misc]
    }
    lines = ["| regret per 100 requests | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for kind, rows in found.items():
        cells = [rows[column(rows)] for column in columns.values()]
        least = min(cell.mean() for cell in cells)
        shown = [_cell(cell, bold=cell.mean() == least) for cell in cells]
        lines.append(f"| {KINDS[kind]} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _cell(values: FloatArray, *, bold: bool) -> str:
    mean, error = values.mean(), values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    text = f"{mean:.2f} ± {error:.2f}"
    return f"**{text}**" if bold else text


def losses(found: Mapping[str, Mapping[str, FloatArray]]) -> str:
    """List the losses of our policies to rivals by more than a standard error of the difference, seed by seed."""
    said = []
    for kind, rows in found.items():
        rival = best_of({label: values for label, values in rows.items() if label not in OURS}, "")
        lost = []
        for label in OURS:
            apart = rows[label] - rows[rival]
            error = apart.std(ddof=1) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
            if apart.mean() > error:
                lost.append(f"{label} {apart.mean():+.2f} ± {error:.2f}")
        if lost:
            said.append(f"- {KINDS[kind]}, to {rival}: {', '.join(lost)}")
    return "Lost to the best rival by more than a standard error:\n\n" + ("\n".join(said) or "- nowhere")


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rounds", type=int, default=3000)
    asked = parser.parse_args(given)
    found = play_all(list(KINDS), range(asked.first, asked.first + asked.seeds), asked.rounds)
    print(f"Four language models: {asked.rounds} requests, {asked.seeds} seeds\n\n{table(found)}\n\n{losses(found)}")


if __name__ == "__main__":
    main()
