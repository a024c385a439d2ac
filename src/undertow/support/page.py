"""The HTML page of all reports: one self-contained file to read, print and share."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from undertow.support.figure import Figure
from undertow.support.writing import replacing

__all__ = ["figures_html", "text", "write_page"]

_STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b636b; --page: #f7f7f5; --card: #ffffff; --line: #dcdcd6;
  --accent: #0072b2; --good: #00785a; --bad: #b3400a; --mark: #e8f2f8; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e4; --soft: #a5adb5; --page: #16181b; --card: #1f2226;
  --line: #3a3f45; --accent: #6bb8e6; --good: #4cc9a0; --bad: #f08a52; --mark: #1d3442; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.6 system-ui, "Segoe UI", "Helvetica Neue",
  Arial, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 0.75rem; letter-spacing: -0.01em; }
h2 { font-size: 1.3rem; margin: 3rem 0 0.75rem; padding-top: 0.9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 0 0 0.75rem; }
p { margin: 0 0 0.9rem; max-width: 46rem; }
.lead { font-size: 1.1rem; }
.soft, small { color: var(--soft); }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.7rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
thead tr:first-child th { border-top: 0; }
thead th { color: var(--soft); font-weight: 600; }
th.group { text-align: center; color: var(--text); }
th[scope=row] { text-align: left; font-weight: 400; position: sticky; left: 0; background: var(--card); }
.words th[scope=row] { white-space: normal; min-width: 12rem; }
td.first, th.group { border-left: 1px solid var(--line); }
td small { display: block; line-height: 1.2; }
td.best { background: var(--mark); }
.knows th[scope=row] { font-style: italic; }
.dot { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 50%; margin-right: 0.5em;
  border: 1px solid #8888; }
.claim { margin: 0 0 1.5rem; } .claim h3 { margin-bottom: 0.3rem; } .claim dt { color: var(--soft); }
blockquote { margin: 0 0 0.6rem; padding-left: 0.9rem; border-left: 3px solid var(--line); max-width: 46rem; }
.yes { color: var(--good); font-weight: 600; } .no { color: var(--bad); font-weight: 600; }
.open { color: var(--soft); }
figure { margin: 0 0 1.75rem; padding: 1.1rem; background: #ffffff; color: #1c2024; border: 1px solid var(--line);
  border-radius: 8px; }
figure img { display: block; width: 100%; height: auto; max-width: 52rem; margin: 0 auto; }
figcaption { margin-top: 0.9rem; font-size: 0.92rem; line-height: 1.5; color: #3d444b; max-width: 46rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.35rem 1rem; margin: 0; }
dt { font-weight: 600; } dd { margin: 0; max-width: 44rem; }
pre { margin: 0 0 0.9rem; padding: 0.8rem 1rem; overflow-x: auto; background: var(--card); font-size: 0.85rem;
  border: 1px solid var(--line); border-radius: 8px; }
@media (max-width: 40rem) { main { padding: 1.5rem 0.8rem 3rem; } h1 { font-size: 1.6rem; }
  figure { padding: 0.5rem; overflow-x: auto; } figure img { min-width: 34rem; } }
@media print { :root { color-scheme: light; --text: #000000; --soft: #444444; --page: #ffffff; --card: #ffffff;
  --line: #bbbbbb; --accent: #00507c; --good: #00593f; --bad: #8a2f00; --mark: #e8f2f8; }
  @page { margin: 15mm; } body { font-size: 10pt; } main { max-width: none; padding: 0; }
  figure, tr, li, .claim { break-inside: avoid; } h2, h3 { break-after: avoid; } figure { border: 0; padding: 0; }
  figure img { max-height: 215mm; width: auto; max-width: 100%; } .scroll { overflow: visible; border: 0; }
  table { font-size: 7.5pt; } th, td { padding: 0.2rem 0.35rem; } th[scope=row] { position: static; } }
"""


def write_page(title: str, parts: Sequence[str], file: Path) -> Path:
    """Write a page from its parts, skip empty ones, and return the file."""
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in (f"<h1>{text(title)}</h1>", *parts) if part)
        + "\n</main>\n</body>\n</html>\n"
    )
    with replacing(file) as part:
        part.write_text(page, encoding="utf-8")
    return file


def figures_html(figures: Sequence[Figure]) -> str:
    """Return numbered figures under a heading; an empty string if there are none."""
    parts = ["<h2>Figures</h2>"] if figures else []
    for place, figure in enumerate(figures, start=1):
        name, title, caption = map(text, (figure.name, figure.title, figure.caption))
        data = base64.b64encode(figure.svg.read_bytes()).decode("ascii")
        image = f'<img src="data:image/svg+xml;base64,{data}" alt="{title}">'
        caption = f"<figcaption>{caption}</figcaption>"
        parts.append(f'<figure id="{name}">\n<h3>{place}. {title}</h3>\n{image}\n{caption}\n</figure>')
    return "\n".join(parts)


def text(value: object) -> str:
    """Return a value as a string, escaped for HTML."""
    return html.escape(str(value))
