"""The style of all figures, and the figures of a policy and of a run; needs the extra `plot`.

pyplot and its global state are not used, so a server may draw too. A notebook shows a sheet that
a cell returns; elsewhere call `savefig`.
"""

import functools
import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.support import checks
from undertow.support.checks import FloatArray

with checks.needing("plot", "plot"):
    from matplotlib import font_manager, rcParams
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = ["ARMS", "DPI", "LEGEND", "SMALL", "WIDTH", "Sheet", "draw_arms", "draw_run", "panels", "plain_axis"]

WIDTH, DPI, SMALL = 7.4, 160, 8  # inches, dots per inch, points
ARMS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
LEGEND: dict[str, Any] = {"loc": "outside lower center", "fontsize": SMALL, "frameon": False}
_GREY = "#777777"
_WIDE = (  # fonts with characters that the default one lacks, on Linux, Windows and macOS
    *(f"Noto Sans CJK {region}" for region in ("SC", "JP", "TC", "KR")),
    "Noto Sans",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "Yu Gothic",
    "Malgun Gothic",
    "PingFang SC",
    "Hiragino Sans",
    "Arial Unicode MS",
)
_POWER = r"$\mathdefault{"  # begins matplotlib's own labels of log axes
_BINS = 100  # of a line over rounds
_MOST_LINES = 20  # up to so many runs are drawn one by one


class Sheet(Figure):
    """A figure that a notebook shows."""

    def savefig(self, *args: Any, **more: Any) -> None:
        """Write the figure; a dollar sign is part of a user's name, not mathematics."""
        for text in self.findobj(Text):
            assert isinstance(text, Text)
            if "$" in text.get_text() and not text.get_text().startswith(_POWER):
                text.set_parse_math(False)
            if not text.get_text().isascii():
                text.set_fontfamily([*rcParams["font.family"], *_others()])
                _tell_of_boxes(text.get_text())
        with warnings.catch_warnings():  # one for each letter, with a line of undertow's source
            warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
            super().savefig(*args, **more)

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=DPI * 0.6)
        return buffer.getvalue()


@functools.cache
def _others() -> tuple[str, ...]:
    """Return the installed fonts for other letters."""
    installed = {font.name for font in font_manager.fontManager.ttflist}
    return tuple(name for name in _WIDE if name in installed)


@functools.cache
def _fonts() -> list[Any]:
    """Return the fonts to use: the default one, then those for other letters."""
    wanted = [font_manager.FontProperties(), *map(font_manager.FontProperties, _others())]
    return [font_manager.get_font(font_manager.findfont(one)) for one in wanted]


def _tell_of_boxes(words: str) -> None:
    """Warn if a figure shows boxes for letters."""
    if not all(any(font.get_char_index(ord(letter)) for font in _fonts()) for letter in words if letter.isprintable()):
        warnings.warn(
            "figures show boxes for letters that no installed font has; install one that has, such as Noto Sans CJK",
            UserWarning,
            stacklevel=3,
        )


def panels(height: float, rows: int = 1, columns: int = 1, *, width: float = WIDTH, **more: Any) -> tuple[Sheet, Any]:
    """Return a sheet, by default as wide as all others, and its axes."""
    sheet = Sheet(figsize=(width, height), layout="constrained")
    return sheet, sheet.subplots(rows, columns, **more)


def plain_axis(axis: Axes, title: str = "", y: str = "", x: str = "") -> None:
    """Give an axis a title and labels, and remove clutter."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=SMALL)
    axis.set_title(title, loc="left", fontsize=SMALL + 1)
    axis.set_xlabel(x, fontsize=SMALL)
    axis.set_ylabel(y, fontsize=SMALL)


def draw_run(
    arms: npt.NDArray[np.int64], earned: FloatArray, errors: FloatArray | None, y: str, arm_count: int
) -> Sheet:
    """Draw the reward or regret of a run so far, the arms it played and, if known, the errors of its forecasts.

    All have the shape (runs, n).
    """
    rows = 2 if errors is None else 3
    sheet, axes = panels(1.2 + 1.5 * rows, rows, sharex=True, squeeze=False)
    rounds = np.arange(1, earned.shape[1] + 1)
    top, middle, *bottom = axes[:, 0]
    plain_axis(top, y=y)
    if 1 < len(earned) <= _MOST_LINES:
        top.plot(rounds, earned.T, color=ARMS[0], lw=0.5, alpha=0.4)
    top.plot(rounds, earned.mean(axis=0), color=ARMS[0], lw=1.6)
    edges = np.unique(np.linspace(0, len(rounds), _BINS + 1).astype(int))
    centres = (edges[:-1] + edges[1:] + 1) / 2
    played = np.stack([(arms == arm).mean(axis=0) for arm in range(arm_count)])
    shares = np.add.reduceat(played, edges[:-1], axis=1) / np.diff(edges)
    plain_axis(middle, y="arms played, %")
    shades = [ARMS[arm % len(ARMS)] for arm in range(arm_count)]
    labels = [str(arm) for arm in range(arm_count)]
    middle.stackplot(centres, 100 * shares, colors=shades, labels=labels, lw=0, step="mid")
    middle.set_ylim(0, 100)
    if errors is not None:
        squares = np.add.reduceat((errors**2).mean(axis=0), edges[:-1]) / np.diff(edges)
        plain_axis(bottom[0], y="error of forecasts, rms")
        bottom[0].plot(centres, np.sqrt(squares), color=ARMS[0], lw=1.2)
        bottom[0].set_ylim(bottom=0)
    axes[-1, 0].set_xlabel("round", fontsize=SMALL)
    axes[-1, 0].set_xlim(1, max(len(rounds), 2))
    if arm_count <= len(ARMS):
        sheet.legend(*middle.get_legend_handles_labels(), ncols=arm_count, title="arm", title_fontsize=SMALL, **LEGEND)
    return sheet


def draw_arms(
    names: Sequence[str],
    forecast: FloatArray,
    width: FloatArray,
    *,
    title: str,
    past: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], FloatArray] | None = None,
    scores: Sequence[tuple[str, float]] = (),
) -> Sheet:
    """Draw every arm's forecast with its width and, of a learner, past rewards and the scores of its models.

    `past` are rounds, arms and rewards; `scores` are names of models with their lead over the best, in nats.
    """
    count = 1 + (past is not None) + (len(scores) > 1)
    sheet, axes = panels(
        max(2.2, 0.9 + 0.25 * len(names)), columns=count, squeeze=False, width=WIDTH * (0.4 + 0.2 * count)
    )
    first, *others = axes[0]
    plain_axis(
        first, title, x="forecast ± width" if np.isfinite(width).all() else "forecast ± width; hollow: not tried yet"
    )
    for place, (value, spread) in enumerate(zip(forecast, width, strict=True)):
        shade, known = ARMS[place % len(ARMS)], bool(np.isfinite(spread))
        look = {"fmt": "o", "ms": 5, "color": shade, "mfc": shade if known else "none"}
        first.errorbar(value, place, xerr=spread if known else None, **look)
    first.set_yticks(range(len(names)), names, fontsize=SMALL)
    first.set_ylim(len(names) - 0.5, -0.5)  # the first on top
    if past is not None:
        rounds, arms, rewards = past
        axis = others.pop(0)
        plain_axis(axis, "rewards of the last rounds", x="round")
        axis.scatter(rounds, rewards, s=6, c=[ARMS[arm % len(ARMS)] for arm in arms], lw=0)
    if others:
        (axis,) = others
        plain_axis(axis, "models, the leader on top", x="behind the leader, nats")
        axis.barh(range(len(scores)), [score for _, score in scores], color=_GREY, height=0.6)
        axis.set_yticks(range(len(scores)), [name for name, _ in scores], fontsize=SMALL)
        axis.invert_yaxis()
    return sheet
