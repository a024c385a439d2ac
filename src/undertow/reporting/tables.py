"""Small tables as Markdown and LaTeX."""

import re
from collections.abc import Iterable, Sequence

__all__ = ["latex", "markdown"]

_SPECIAL = {"−": "$-$", "–": "--", "±": r"$\pm$", "ψ": r"$\psi$", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}"}
_ESCAPED = "&%$#_{}"


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
