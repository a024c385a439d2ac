"""Vowpal Wabbit: online gradient descent, all arms in one regression over inputs crossed with the arm.

Tuned: the kind of exploration and its strength, learning rate, a rate that never falls (`--power_t 0`, for rewards that
drift), coin betting. Examples are text, the way of its tutorials; entries that are 0 are left out.
"""

import random
from typing import Any

from vowpalwabbit import Workspace

from benchmarks.peers.protocol import Array, Parameters

CANDIDATES: list[Parameters] = [
    {"algorithm": "SquareCB", "options": "--squarecb"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 100"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 1000"},
    {"algorithm": "SquareCB", "options": "--squarecb --learning_rate 2"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 100 --learning_rate 2"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 1000 --learning_rate 2"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 100 --learning_rate 8"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 1000 --learning_rate 8"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 1000 --learning_rate 30"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 1000 --power_t 0 --learning_rate 0.2"},
    {"algorithm": "SquareCB", "options": "--squarecb --gamma_scale 1000 --coin"},
    {"algorithm": "ε-greedy", "options": "--epsilon 0.02 --learning_rate 2"},
    {"algorithm": "first", "options": "--first 100 --learning_rate 2"},
    {"algorithm": "cover", "options": "--cover 4 --epsilon 0.02 --learning_rate 2"},
    {"algorithm": "RegCB", "options": "--regcbopt --mellowness 0.001"},
]


class VowpalWabbit:
    """`--cb_explore_adf` with the inputs shared by all arms."""

    def __init__(self, space: Any, arms: int, seed: int) -> None:
        self.space, self.draw = space, random.Random(seed)
        self.arms = [f"|a {arm}" for arm in range(arms)]

    def choose(self, inputs: Array) -> int:
        """Sample from the distribution over arms."""
        self.shared = "shared |s " + " ".join(f"{i}:{x}" for i, x in enumerate(inputs.tolist()) if x)
        self.chances = self.space.predict([self.shared, *self.arms])
        return self.draw.choices(range(len(self.arms)), self.chances)[0]

    def learn(self, inputs: Array, arm: int, reward: float) -> None:
        """Learn the cost, which is −reward."""
        lines = [self.shared, *self.arms]
        lines[arm + 1] = f"0:{-reward}:{self.chances[arm]} {self.arms[arm]}"
        self.space.learn(lines)


def start(arms: int, inputs: int, seed: int, parameters: Parameters) -> VowpalWabbit:
    fixed = "--cb_explore_adf -q sa --ignore_linear s --noconstant --quiet -b 20"
    return VowpalWabbit(Workspace(f"{fixed} --random_seed {seed} {parameters['options']}"), arms, seed)
