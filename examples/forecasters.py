"""Forecaster selection: whom to trust for the next hour.

Recorded data: users of a bike-sharing system (package ISLP) and electricity demand in Victoria (package statsmodels),
by the hour. An arm is one of five simple forecasters, its reward −|error|, and the hour is known before the choice.
Everybody could see the errors of all five afterwards. Here the policies see only the error of the one they chose, as if
forecasts were bought; the full-information average sees them all.
"""

from collections.abc import Sequence

from lineup import draw, options, play_table, print_table, repeat
from undertow.problems.datasets import dataset

SERIES = {"Bike sharing, 5 forecasters": "bike-sharing", "Victoria, 5 forecasters": "victoria"}


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, rounds=None, out="forecasters.png", arguments=arguments)
    earned = {}
    for title, name in SERIES.items():
        hours = repeat(dataset(name), seeds=chosen.seeds, rounds=chosen.rounds)
        earned[title] = play_table(hours)
        print_table(f"{title}: {hours.rounds} hours, {chosen.seeds} seeds", earned[title])
    draw(earned, chosen.out)


if __name__ == "__main__":
    main()
