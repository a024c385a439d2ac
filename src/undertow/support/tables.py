"""Small tables as Markdown and LaTeX."""

import re
from collections.abc import Iterable, Sequence

__all__ = ["aligned", "latex", "markdown"]

_SPECIAL = {"−": "$-$", "–": "--", "±": r"$\pm$", "ψ": r"$\psi$", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_ESCAPED = "&%$#_{}"


_NAME = 40  # letters of a name in the first column
_BETWEEN = "  "


def aligned(head: Sequence[str], rows: Iterable[Sequence[str]], width: int = 100) -> str:
    """Return a table for a terminal, numbers to the right, without the last columns if they do not fit.

    Examples
    --------
    >>> print(aligned(["policy", "reward"], [["always", "1.5"], ["never", "−0.25"]]))
    policy  reward
    always     1.5
    never    −0.25
    """
    lines = [[_shortened(line[0]), *line[1:]] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    while len(widths) > 2 and sum(widths) + len(_BETWEEN) * (len(widths) - 1) > width:
        widths.pop()
    return "\n".join(
        _BETWEEN.join([line[0].ljust(widths[0]), *map(str.rjust, line[1 : len(widths)], widths[1:])]).rstrip()
        for line in lines
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a table in Markdown, numbers to the right.

    Examples
    --------
    >>> print(markdown(["policy", "regret"], [["a|b", "1.5"]]))
    | policy | regret |
    | --- | ---: |
    | a\|b | 1.5 |
    """
    marks = ["---", *["---:"] * (len(head) - 1)]
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (head, marks, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def latex(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""Return a tabular in LaTeX, with the rules of booktabs.

    Examples
    --------
    >>> print(latex(["policy", "regret, %"], [["a_b", "−1.5"]]))
    \begin{tabular}{lr}
    \toprule
    policy & regret, \% \\
    \midrule
    a\_b & $-$1.5 \\
    \bottomrule
    \end{tabular}
    """
    first, *others = [" & ".join(map(_escaped, line)) + r" \\" for line in (head, *rows)]
    columns = "l" + "r" * (len(head) - 1)
    parts = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule", *others, r"\bottomrule"]
    return "\n".join([*parts, r"\end{tabular}"])


def _escaped(text: str) -> str:
    special = f"[{re.escape(_ESCAPED + ''.join(_SPECIAL))}]"
    return re.sub(special, lambda found: _SPECIAL.get(found[0], f"\\{found[0]}"), text)
