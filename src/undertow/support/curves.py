"""Lines over rounds with their intervals, and labels at their ends."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import StrMethodFormatter

from undertow.support.checks import FloatArray
from undertow.support.drawing import Sheet, panels, plain_axis
from undertow.support.figure import line_styles
from undertow.support.numbers import Measured

__all__ = ["draw_curves", "label_ends"]

_APART = 1.25  # heights of a line of text between two labels
_POINTS_PER_INCH = 72


def draw_curves(
    rounds: FloatArray,
    curves: Mapping[str, Sequence[Measured]],
    title: str,
    *,
    width: float,
    height: float,
    font: float,
    line: float,
    band: bool,
    log: bool,
) -> Sheet:
    """Draw a line for each policy, with a band from low to high."""
    sheet, axis = panels(height, width=width)
    plain_axis(axis, y=title, x="round")
    styles = line_styles(curves)
    ends = {}
    for label, values in curves.items():
        value, low, high = np.array(values).T
        axis.plot(rounds, value, **styles[label] | {"lw": line})
        if band and np.isfinite(low).all():
            axis.fill_between(rounds, low, high, color=styles[label]["color"], alpha=0.18, lw=0)
        ends[label] = float(value[-1])
    if log:
        axis.set_yscale("log")
    axis.set_xlim(rounds[0], rounds[-1])
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axis.tick_params(labelsize=font)
    for text in (axis.xaxis.label, axis.yaxis.label):
        text.set_fontsize(font)
    label_ends(axis, ends, {label: style["color"] for label, style in styles.items()}, height=height, font=font)
    return sheet


def label_ends(
    axis: Axes, ends: Mapping[str, float], colours: Mapping[str, str], *, height: float, font: float
) -> None:
    """Write the labels of lines at their ends, apart from one another, in the colours of the lines."""
    scale = axis.transAxes.inverted()
    places = {label: float(scale.transform(axis.transData.transform((0, end)))[1]) for label, end in ends.items()}
    ordered = sorted(places, key=places.__getitem__)
    gap = _APART * font / _POINTS_PER_INCH / max(height - 0.6, 0.5)
    for below, label in itertools.pairwise(ordered):
        places[label] = max(places[label], places[below] + gap)
    for label, place in places.items():
        look: dict[str, Any] = {"fontsize": font, "color": colours[label], "va": "center", "ha": "left"}
        axis.annotate(label, (1.01, place), xycoords="axes fraction", annotation_clip=False, **look)
