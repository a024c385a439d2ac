"""One live round of another library's contextual bandit, timed: run by policies.py in an environment of its own.

    python peer_rounds.py PEER FOLDER

FOLDER holds inputs.npy (n, p), the ready-made feature vectors, and rewards.npy (n, k). A round is choosing an arm and
learning its reward, by the fastest calls found that do learn, with the conversion of the vector counted. Printed are
the time of a round and what was earned above the average of the arms: about 0 for a peer that does not learn.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def mabwiser(inputs: Array, rewards: Array) -> Callable[[int], int]:
    from mabwiser.mab import MAB, LearningPolicy  # type: ignore[import-not-found]

    arms = list(range(rewards.shape[1]))
    bandit = MAB(arms, LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
    bandit.fit(np.array(arms), rewards[0], inputs[: len(arms)])

    def play(t: int) -> int:
        x = inputs[t : t + 1]
        arm = int(bandit.predict(x))
        bandit.partial_fit(np.array([arm]), rewards[t, arm : arm + 1], x)
        return arm

    return play


def vowpal_wabbit(inputs: Array, rewards: Array) -> Callable[[int], int]:
    """One regressor an arm, ε-greedy; the example is built once a round and used twice."""
    from vowpalwabbit import Example, LabelType, Workspace  # type: ignore[import-not-found]

    space = Workspace(f"--cb_explore {rewards.shape[1]} --epsilon 0.05 --noconstant --quiet")
    uniform, paid = _uniform(rewards), rewards.tolist()

    def play(t: int) -> int:
        example = Example(space, {"s": list(enumerate(inputs[t].tolist()))}, LabelType.CONTEXTUAL_BANDIT)
        chances = space.predict(example)
        arm = _drawn(chances, uniform[t])
        example.unsetup_example()  # without this the label is ignored
        example.set_label_string(f"{arm + 1}:{-paid[t][arm]}:{chances[arm]}")
        example.setup_example()
        space.learn(example)
        space.finish_example(example)
        return arm

    return play


def vowpal_wabbit_adf(inputs: Array, rewards: Array) -> Callable[[int], int]:
    """SquareCB with features of the arms crossed with the shared ones, as text: the way of its tutorials."""
    from vowpalwabbit import Workspace

    space = Workspace("--cb_explore_adf --squarecb -q sa --noconstant --quiet")
    uniform, paid = _uniform(rewards), rewards.tolist()

    def play(t: int) -> int:
        shared = "shared |s " + " ".join(f"{i}:{x}" for i, x in enumerate(inputs[t].tolist()))
        arms = [f"|a {arm}" for arm in range(rewards.shape[1])]
        chances = space.predict([shared, *arms])
        arm = _drawn(chances, uniform[t])
        arms[arm] = f"0:{-paid[t][arm]}:{chances[arm]} {arms[arm]}"
        space.learn([shared, *arms])
        return arm

    return play


def _uniform(rewards: Array) -> list[float]:
    return list(np.random.default_rng(0).random(len(rewards)).tolist())


def _drawn(chances: Any, uniform: float) -> int:
    for arm in range(len(chances) - 1):
        uniform -= chances[arm]
        if uniform < 0:
            return arm
    return len(chances) - 1


PEERS = {
    "mabwiser LinUCB": mabwiser,
    "VW cb_explore": vowpal_wabbit,
    "VW cb_explore_adf": vowpal_wabbit_adf,
}


def main(peer: str, folder: Path) -> None:
    inputs, rewards = np.load(folder / "inputs.npy"), np.load(folder / "rewards.npy")
    play = PEERS[peer](inputs, rewards)
    start = time.perf_counter()
    arms = [play(t) for t in range(len(rewards))]
    microseconds = (time.perf_counter() - start) / len(rewards) * 1e6
    gain = float(np.mean(rewards[np.arange(len(arms)), arms] - rewards.mean(axis=1)))
    print(json.dumps({"microseconds": microseconds, "gain": gain}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
