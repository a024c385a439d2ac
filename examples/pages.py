"""Run the commands that the pages in docs/examples name, and put what they print and draw into the pages.

Words are not changed: read the pages again after it. Names of pages may be given; all are done by default.
"""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

PAGES = Path(__file__).parents[1] / "docs" / "examples"
COMMAND = r"^    python (examples/\w+\.py)([^\n]*)$"
PRINTED = re.compile(rf"({COMMAND}.*?^<!-- printed -->\n).*?(^<!-- end -->)", re.M | re.S)


def run(found: re.Match[str], page: Path) -> str:
    """Run the command of a match, and return the match with what it prints now."""
    before, program, arguments, after = found.groups()
    figure = [] if arguments else ["--out", str(page.with_suffix(".png"))]
    command = [sys.executable, program, *arguments.split(), *figure]
    printed = subprocess.run(command, cwd=PAGES.parents[1], check=True, stdout=subprocess.PIPE, text=True).stdout
    return f"{before}{printed.split('Figure:')[0].strip()}\n{after}"


def main() -> None:
    for page in [PAGES / f"{name}.md" for name in sys.argv[1:]] or sorted(PAGES.glob("*.md")):
        print(page.name, flush=True)
        page.write_text(PRINTED.sub(partial(run, page=page), page.read_text()))


if __name__ == "__main__":
    main()
