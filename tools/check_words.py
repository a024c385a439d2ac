"""Check the words of docstrings, comments, strings and pages: a retired one has a plainer replacement.

    python tools/check_words.py    # docstrings, comments and strings of src, and docs/*.md

Code, between backticks too, may have any names. Tables that a command printed are checked where they are printed.
"""

import argparse
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RETIRED = {  # words, as a regular expression: what to write instead
    r"where (?:there|none|nothing|nobody|no|needed|given|any)|NaN where|None where": "if, for a condition",
    r"to the bit|bit for bit": "bit-identical, or reproducible",
    r"whole or not at all": "atomic",
    r"boredom": "what the score rewards",
    r"(?:stands?|standing|stood) still": "stationary, or constant",
    r"(?:by|of) (?:itself|themselves)": "alone, separate, or automatically",
    r"of (?:its|their|our) own(?!\s+\w)": "its own, before the noun",
    r"of ours": "undertow's",
    r"as it is": "unchanged",
    r"anew": "again",
    r"seldom": "rarely",
    r"now and then": "occasionally",
    r"at once": "immediately, or together",
    r"(?:takes?|took|taken|taking) (?:note|in)": "count, record, learn, observe or accept",
    r"(?:takes?|took|taken) up": "use, or swap in",
    r"decisions? that waits?|decisions wait|waiting decisions?": "pending decisions",
    r"ha(?:s|ve) to know": "needs",
    r"knows everything|everything known": "clairvoyant, or oracle",
    r"asleep|awake": "evicted, suspended, loaded or available",
    r"(?:leads?|led) (?:up|through)": "replay, or before",
    r"whole numbers?": "integer",
    r"side information": "feature",
    r"null case": "stationary problem",
    r"person on call": "status, or health",
    r"moments?": "time step, or time",
}
_TITLES = "titles of published tables"
_LAW = "of a distribution"
_OLD = "the earlier name, which files have"
ALLOWED = {  # a file and words: why they stay
    ("src/undertow/problems/worlds.py", "stand still"): _TITLES,
    ("src/undertow/problems/worlds.py", "of its own"): _TITLES,
    ("src/undertow/problems/worlds.py", "now and then"): _TITLES,
    ("src/undertow/equations/kalman.py", "moments"): _LAW,
    ("src/undertow/live/fields.py", "moments"): _LAW,
    ("src/undertow/live/standardize.py", "moments"): _LAW,
    ("src/undertow/models/shared_system/information.py", "moment"): _LAW,
    ("src/undertow/live/decision.py", "moment"): _OLD,
    ("src/undertow/support/renamed.py", "moment"): _OLD,
    ("src/undertow/replay/diagnosis_text.py", "everything known"): "a value in diagnosis.json",
    ("src/undertow/replay/simple_rules.py", "everything known"): "a value in diagnosis.json",
}
_GAP = r"\s+(?:# )?"  # between two words, perhaps on two lines of a comment
_WORDS = {words: re.compile(rf"\b(?:{words.replace(' ', _GAP)})\b", re.IGNORECASE) for words in RETIRED}
_ANY = re.compile("|".join(pattern.pattern for pattern in _WORDS.values()), re.IGNORECASE)
_SHOWN = re.compile(r"<!-- results: .*?<!-- end -->|^```.*?^```|^ {4}.*?$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"`[^`\n]*`")
_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


class Finding(NamedTuple):
    """A retired word, and its replacement."""

    file: str
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words!r}; write {self.instead}"


def prose_of(path: Path) -> str:
    """Return the text of a file with everything but prose blanked; "" if nothing in it is retired."""
    text = path.read_text(encoding="utf-8")
    if not _ANY.search(text):
        return ""
    return _QUOTED.sub(_blank, _module(text) if path.suffix == ".py" else _SHOWN.sub(_blank, text))


def retired(path: Path, name: str) -> Iterator[Finding]:
    """Find the retired words in the prose of a file."""
    prose = prose_of(path)
    for words, pattern in _WORDS.items() if prose else ():
        for match in pattern.finditer(prose):
            found = " ".join(match.group().replace("#", " ").split())
            if (name, found.lower()) not in ALLOWED:
                yield Finding(name, prose.count("\n", 0, match.start()) + 1, found, RETIRED[words])


def _module(source: str) -> str:
    """Return the strings and comments of a module at their places, the comments without code between them."""
    lines = source.split("\n")
    prose = ["\0" * len(line) for line in lines]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _STRINGS and token.type != tokenize.COMMENT:
            continue
        (first, start), (last, end) = token.start, token.end
        for n in range(first - 1, last):
            here, to = start if n == first - 1 else 0, end if n == last - 1 else len(lines[n])
            indent = token.type == tokenize.COMMENT and not lines[n][:here].strip()
            prose[n] = (" " * here if indent else prose[n][:here]) + lines[n][here:to] + prose[n][to:]
    return "\n".join(prose)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "\0", match.group())


def check(root: Path) -> list[Finding]:
    """Return all findings in the sources and the pages of a folder."""
    files = [*sorted(root.glob("src/**/*.py")), *sorted(root.glob("docs/*.md"))]
    found = [each for path in files for each in retired(path, path.relative_to(root).as_posix())]
    return sorted(found, key=lambda each: each[:2])


def main(given: Sequence[str] | None = None) -> int:
    """Print all findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python tools/check_words.py")
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the folder with src and docs")
    found = check(parser.parse_args(given).root)
    for finding in found:
        print(finding)
    print(f"{len(found)} found" if found else "No retired words.")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
