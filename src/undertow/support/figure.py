"""Shared by all figures: sizes, the colour of each policy, plain axes, files."""

import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import LogLocator, StrMethodFormatter

from undertow.support.drawing import ARMS, DPI, LEGEND, SMALL, WIDTH, panels, plain_axis
from undertow.support.writing import replacing

__all__ = [
    "ARMS",
    "DPI",
    "LEGEND",
    "SMALL",
    "WIDTH",
    "Figure",
    "colour",
    "line_style",
    "line_styles",
    "log_scale",
    "panels",
    "plain_axis",
    "save_sheet",
    "write_figure",
]

_KNOWN = {  # colour and dashes
    "Oracle": ("#000000", "-"),
    "ARES": ("#0072B2", "-"),
    "ARES (ν = 0.03)": ("#003F7F", "--"),
    "ARES (noise estimated)": ("#56B4E9", "--"),
    "UBSS": ("#DDAA33", ":"),
    "UBSS (no width)": ("#BB8800", "-"),
    "LARL": ("#997700", "--"),
    "UCB": ("#D55E00", "-"),
    "Sliding-window UCB": ("#CC79A7", "--"),
    "Rexp3": ("#882255", ":"),
    "Random": ("#999999", "-."),
    "LinUCB": ("#66B366", "--"),
    "LinUCB + own rewards": ("#00785A", "-"),
    "KalmanGreedy": ("#5B3FA8", "-"),
    "Full-information oracle": ("#5A5A5A", ":"),
    "LearnedKalman": ("#B5179E", "-"),
    "StructuralKalman": ("#8C8C00", "-"),
    "Autopilot": ("#CC3311", "-"),
}
_PIES = ("#F6C75E", "#8A4B00")  # windows 1 and 10
_OTHERS = ("#AA3377", "#228833", "#B8860B", "#6A3D9A", "#00868B", "#A0522D", "#708090", "#4477AA")
_DASHES = ("-", "--", ":", "-.")


class Figure(NamedTuple):
    """A figure on disk, with its title and caption."""

    name: str
    title: str
    caption: str
    png: Path
    svg: Path


def write_figure(sheet: Sheet, name: str, title: str, caption: str, folder: Path) -> Figure:
    """Write a figure to `folder / "figures"`, as PNG, SVG and PDF."""
    place = folder / "figures"
    place.mkdir(parents=True, exist_ok=True)
    png, svg = place / f"{name}.png", place / f"{name}.svg"
    save_sheet(sheet, png, dpi=DPI)
    save_sheet(sheet, svg, metadata={"Date": None})
    save_sheet(sheet, place / f"{name}.pdf", metadata={"CreationDate": None})
    return Figure(name, title, caption, png, svg)


def save_sheet(sheet: Sheet, file: Path, **more: Any) -> None:
    """Write one image atomically, in the format of its name."""
    with replacing(file) as part:
        sheet.savefig(part, **more)


def colour(label: str) -> str:
    """Return the colour of a policy, the same in every figure; the windows of PIES are shades of one hue."""
    return _own_colour(label) or _OTHERS[zlib.crc32(label.encode()) % len(_OTHERS)]


def line_style(label: str) -> dict[str, Any]:
    """Return the line style of a policy."""
    dashes = _KNOWN.get(label, ("", "-"))[1]
    return {"color": colour(label), "lw": 2 if label == "ARES" else 1.3, "ls": dashes, "label": label}


def line_styles(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the line style of every policy of a comparison, so that no two of a user's labels look alike.

    Labels without a fixed colour get the others in turn; after the last colour, the dashes change.

    Examples
    --------
    >>> styles = line_styles(["ARES", "mine", "yours"])
    >>> styles["mine"]["color"], styles["yours"]["color"]
    ('#AA3377', '#228833')
    """
    styles = {label: line_style(label) for label in labels}
    for place, label in enumerate(label for label in styles if _own_colour(label) is None):
        turn, hue = divmod(place, len(_OTHERS))
        styles[label] |= {"color": _OTHERS[hue], "ls": _DASHES[turn % len(_DASHES)]}
    return styles


def log_scale(axis: Axes) -> None:
    """Set a log scale with plain numbers, at 1, 2 and 5 times powers of ten."""
    axis.set_yscale("log", subs=[])
    axis.yaxis.set_major_locator(LogLocator(10, (1.0, 2.0, 5.0), numticks=12))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _own_colour(label: str) -> str | None:
    """Return the fixed colour of a label; None for a user's label."""
    if label in _KNOWN:
        return _KNOWN[label][0]
    window = label.removeprefix("PIES(").removesuffix(")")
    if label == window or not window.isdecimal():
        return None
    share = min(max((int(window) - 1) / 9, 0.0), 1.0)
    red, green, blue = ((1 - share) * a + share * b for a, b in zip(*map(to_rgb, _PIES), strict=True))
    return to_hex((red, green, blue))
