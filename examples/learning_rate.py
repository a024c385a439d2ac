"""Learning-rate control: which rate to train with next while the labels drift.

Real training: an MLPClassifier of scikit-learn learns its digits by plain SGD, and every 20 minibatches two digits swap
their labels. An arm is a learning rate, kept for ten minibatches; its reward is minus their mean loss, each minibatch
being judged before it is learned. The context is the loss, its spread and the norm of the gradient over those ten.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from lineup import (
    DECAY,
    FULL_AVERAGE,
    FloatArray,
    draw_ranges,
    line_up,
    options,
    play_seeds,
    shade,
    verdict,
    write_figure,
)
from undertow.policies import Random

RATES = (0.02, 0.06, 0.2, 0.6, 2.0)
HORIZON, BATCH, SWAP = 10, 32, 20  # minibatches a round, images a minibatch, minibatches between two swaps
ONE_STEP, AHEAD = "clairvoyant, one minibatch", f"clairvoyant, {HORIZON} minibatches"
Batch = tuple[FloatArray, FloatArray]  # images, one-hot labels


def drifting_digits(rounds: int, seed: int) -> list[Batch]:
    """Return the minibatches of a run, and one more to look ahead to."""
    images, digits = load_digits(return_X_y=True)
    rng, labels, batches = np.random.default_rng(seed), np.eye(10), []
    for number in range(rounds * HORIZON + 1):
        if number % SWAP == SWAP - 1:
            swapped = rng.choice(10, 2, replace=False)
            labels[swapped] = labels[swapped[::-1]]
        chosen = rng.integers(len(images), size=BATCH)
        batches.append((images[chosen] / 16, labels[digits[chosen]]))
    return batches


class Network:
    """An MLPClassifier that is trained at a rate which may change with every minibatch.

    `partial_fit` keeps to one rate, hides the gradient and checks its input for milliseconds. So this class uses the
    network's own gradient and makes the step, weights −= rate · gradient.
    """

    def __init__(self, seed: int) -> None:
        self.model = MLPClassifier((16,), activation="tanh", solver="sgd", alpha=0.0, random_state=seed)
        self.model.partial_fit(np.zeros((10, 64)), np.arange(10), classes=np.arange(10))  # makes the weights
        self.weights = [*self.model.coefs_, *self.model.intercepts_]

    def gradient(self, batch: Batch) -> tuple[float, list[FloatArray]]:
        """Return the loss of a minibatch and its gradient."""
        images, labels = batch
        spare: list[Any] = [None, None]
        backprop = self.model._backprop  # noqa: SLF001 (scikit-learn has no public gradient)
        loss, *gradients = backprop(images, labels, None, [images, None, None], spare, spare[:], spare[:])
        return loss, gradients[0] + gradients[1]

    def train(self, batches: Sequence[Batch], rate: float) -> tuple[FloatArray, FloatArray]:
        """Learn minibatches one after the other; return their losses, each before it was learned, and the context."""
        losses, norms = [], []
        for batch in batches:
            loss, gradient = self.gradient(batch)
            for weights, part in zip(self.weights, gradient, strict=True):
                weights -= rate * part
            losses.append(loss)
            norms.append(math.sqrt(sum(np.vdot(part, part) for part in gradient)))
        return np.array(losses), np.array([np.mean(losses), np.std(losses), np.mean(norms)])

    def copy(self) -> list[FloatArray]:
        """Return a copy of the weights."""
        return [part.copy() for part in self.weights]

    def restore(self, weights: list[FloatArray]) -> None:
        """Go back to earlier weights."""
        for part, earlier in zip(self.weights, weights, strict=True):
            part[:] = earlier


def play(policy: Any, batches: list[Batch], seed: int) -> FloatArray:
    """Let a policy choose the rate of every round; return the loss of every minibatch.

    The loss falls from its start under any policy, and some try the arms in order. So that none profits from the order
    of the rates, each seed has another.
    """
    network, played, rates = Network(seed), [], np.random.default_rng(seed).permutation(RATES)
    for first in range(0, len(batches) - 1, HORIZON):
        decision = policy.decide()
        losses, context = network.train(batches[first : first + HORIZON], rates[decision.arm])
        policy.learn(decision, -losses.mean())
        if getattr(policy, "context_dim", 0):
            policy.observe(context)
        played.append(losses)
    return np.concatenate(played)


def play_schedule(rate: float, power: float, batches: list[Batch], seed: int) -> FloatArray:
    """Train at rate / round^power, scikit-learn's "invscaling"; with power 0 the rate stays."""
    network, starts = Network(seed), range(0, len(batches) - 1, HORIZON)
    return np.concatenate(
        [network.train(batches[i : i + HORIZON], rate / (i // HORIZON + 1) ** power)[0] for i in starts]
    )


def play_looking_ahead(batches: list[Batch], seed: int, *, ahead: int, decay: float) -> FloatArray:
    """Try every rate on the coming minibatches, and choose by an average of their losses.

    With decay 0 only the coming ones count, and the choice is that of a clairvoyant. Otherwise the trials of a round
    count from the next one on.
    """
    network, averages, played = Network(seed), np.zeros(len(RATES)), []
    for first in range(0, len(batches) - 1, ahead):
        weights, trials = network.copy(), []
        for rate in RATES:
            losses, _ = network.train(batches[first : first + ahead], rate)
            after, _ = network.gradient(batches[first + ahead])
            trials.append((-losses[1:].sum() - after, losses, network.copy()))
            network.restore(weights)
        rewards = np.array([reward for reward, _, _ in trials])
        chosen = int((averages if decay else rewards).argmax())
        averages += (1 - decay) * (rewards - averages)
        _, losses, after_training = trials[chosen]
        network.restore(after_training)
        played.append(losses)
    return np.concatenate(played)


class SuccessiveHalving:
    """Play the rates that are left in turn; after each quarter of the rounds the worse half of them is dropped."""

    def __init__(self, rounds: int) -> None:
        self.left, self.quarter, self.turn = list(range(len(RATES))), rounds // 4, 0
        self.rewards: dict[int, list[float]] = {}

    def decide(self) -> SimpleNamespace:
        """Choose the next rate."""
        if self.turn and self.quarter and self.turn % self.quarter == 0 and len(self.left) > 1:
            self.left.sort(key=lambda arm: -np.mean(self.rewards.get(arm, [-np.inf])))
            self.left = self.left[: (len(self.left) + 1) // 2]
            self.rewards = {}
        self.turn += 1
        return SimpleNamespace(arm=self.left[self.turn % len(self.left)])

    def learn(self, decision: SimpleNamespace, reward: float) -> None:
        """Record the loss of the rate."""
        self.rewards.setdefault(decision.arm, []).append(reward)


def play_seed(seed: int, rounds: int) -> dict[str, FloatArray]:
    """Let all players train the same network on the same minibatches; return the losses, one per minibatch."""
    batches = drifting_digits(rounds, seed)
    policies: dict[str, Any] = dict(line_up(arms=len(RATES), context_dim=3, seed=seed))
    policies |= {"successive halving": SuccessiveHalving(rounds), "random choice": Random(arms=len(RATES), rng=seed)}
    schedules = {f"always {rate:g}": (rate, 0.0) for rate in RATES} | {"schedule 2 / √round": (RATES[-1], 0.5)}
    return (
        {label: play(policy, batches, seed) for label, policy in policies.items()}
        | {label: play_schedule(rate, power, batches, seed) for label, (rate, power) in schedules.items()}
        | {
            FULL_AVERAGE: play_looking_ahead(batches, seed, ahead=HORIZON, decay=DECAY),
            ONE_STEP: play_looking_ahead(batches, seed, ahead=1, decay=0.0),
            AHEAD: play_looking_ahead(batches, seed, ahead=HORIZON, decay=0.0),
        }
    )


def best_fixed(losses: dict[str, FloatArray]) -> str:
    """Return the label of the fixed rate with the least loss, which only hindsight knows."""
    fixed = [label for label in losses if label.startswith("always")]
    return min(fixed, key=lambda label: float(np.median(losses[label].mean(axis=1))))


def print_losses(losses: dict[str, FloatArray]) -> None:
    """Print the mean losses over the whole run as a Markdown table, with a conclusion."""
    means = {label: table.mean(axis=1) for label, table in losses.items()}
    seeds, minibatches = next(iter(losses.values())).shape
    print(f"Digits with drifting labels: {minibatches} minibatches, {minibatches // HORIZON} rounds, {seeds} seeds\n")
    print(f"| {'trained by':28} | loss: median | lowest | highest | last quarter |")
    print(f"|{'-' * 30}|-------------:|-------:|--------:|-------------:|")
    for label, mean in means.items():
        late = np.median(losses[label][:, -minibatches // 4 :].mean(axis=1))
        print(f"| {label:28} | {np.median(mean):12.3f} | {mean.min():6.3f} | {mean.max():7.3f} | {late:12.3f} |")
    best = best_fixed(losses)
    print()
    print(verdict({label: means[label] for label in line_up(arms=len(RATES), context_dim=3)}, digits=3, least=True))
    for label in (ONE_STEP, AHEAD):
        worse = int((means[label] > means[best]).sum())
        print(f"The {label}, is worse than the best fixed rate ({best}) in {worse} of {seeds} seeds.")
    print()


def draw(losses: dict[str, FloatArray], file: Path) -> None:
    """Draw the loss over minibatches for some, and that of the whole run for all."""
    sheet = Figure(figsize=(9, 5), layout="constrained")
    over, end = sheet.subplots(1, 2, width_ratios=[3, 2])
    shown = ("Autopilot", "StructuralKalman", "Sliding-window UCB", ONE_STEP, best_fixed(losses))
    for label, dashes in zip(shown, ("-", "-", "-", ":", "--"), strict=True):
        median = np.median(losses[label], axis=0)
        smooth = median[: len(median) // SWAP * SWAP].reshape(-1, SWAP).mean(axis=1)
        over.plot(SWAP * (np.arange(len(smooth)) + 0.5), smooth, dashes, color=shade(label), lw=1.4, label=label)
    over.set(title="Training", xlabel="minibatch", ylabel=f"loss: median over seeds, mean of {SWAP} minibatches")
    over.spines[["top", "right"]].set_visible(False)
    over.legend(frameon=False, fontsize=9)
    draw_ranges(end, {label: table.mean(axis=1) for label, table in losses.items()})
    end.set(title="Whole run, with range", xlabel="loss")
    write_figure(sheet, file)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, rounds=150, out="learning_rate.png", arguments=arguments)
    losses = play_seeds(partial(play_seed, rounds=chosen.rounds), chosen.seeds)
    print_losses(losses)
    draw(losses, chosen.out)


if __name__ == "__main__":
    main()
