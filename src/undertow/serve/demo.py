"""A live demonstration: recorded data, played by bandits whose rewards come late, and some never."""

import contextlib
import random
import threading
from collections import deque
from typing import NamedTuple

from undertow.errors import StoreError
from undertow.policies import make
from undertow.problems.datasets import dataset
from undertow.store import DurablePolicy
from undertow.store import open as open_bandit

__all__ = ["fill", "play"]

_TOGETHER = 20  # rounds that share a commit while past rounds are filled in


class _Story(NamedTuple):
    """A bandit of the demonstration: its name, the recorded data, its policy, and how many rounds late rewards come."""

    name: str
    data: str
    policy: str
    late: int


_STORIES = (
    _Story("electricity forecasts", "victoria", "autopilot", 6),
    _Story("bike stations", "chicago", "linucb", 3),
    _Story("jobs by industry", "employment", "ucb", 0),
)


class _Player:
    """Plays the recorded rounds in order, and starts again after the last."""

    def __init__(self, url: str, story: _Story, seed: int) -> None:
        data = dataset(story.data)
        self._rewards, self._features = data.trajectory.rewards, data.trajectory.features
        self._draw, self._late, self._waiting = random.Random(seed), story.late, deque[tuple[str, float]]()
        needs = {"feature_dim": self._features.shape[-1]} if story.policy != "ucb" else {}
        policy = make(story.policy, arms=list(data.arms), explore=0.05, rng=seed, **needs)
        self._policy: DurablePolicy = open_bandit(url, story.name, policy, timeout=60)
        self._takes_features = bool(needs)

    def play(self, rounds: int) -> None:
        """Play some rounds in one transaction."""
        with self._policy.transaction():
            for _ in range(rounds):
                t = self._policy.round % len(self._rewards)
                decision = self._policy.decide(self._features[t] if self._takes_features else None)
                if self._draw.random() > 0.02:  # some rewards never come
                    self._waiting.append((decision.id, float(self._rewards[t, decision.arm])))
                while len(self._waiting) > self._draw.randint(0, self._late):
                    self._policy.learn(*self._waiting.popleft())


def fill(url: str, rounds: int) -> list[_Player]:
    """Play some rounds of every bandit, and return their players."""
    players = [_Player(url, story, seed) for seed, story in enumerate(_STORIES)]
    for player in players:
        for _ in range(rounds // _TOGETHER):
            player.play(_TOGETHER)
    return players


def play(url: str, rounds: int = 2000, pause: float = 0.5) -> threading.Thread:
    """Fill a store, and continue for as long as the process lives."""

    def go_on() -> None:
        players = fill(url, rounds)
        while True:
            for player in players:
                with contextlib.suppress(StoreError):
                    player.play(1)
            threading.Event().wait(pause)

    thread = threading.Thread(target=go_on, daemon=True, name="undertow-demo")
    thread.start()
    return thread
