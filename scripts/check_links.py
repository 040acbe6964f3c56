"""Checks relative links and anchors in the documentation: python scripts/check_links.py

It works offline: links to other sites are not followed. Anchors are those that GitHub derives from
headings.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

REPOSITORY = Path(__file__).resolve().parent.parent
FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def main() -> int:
    problems = list(check([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def check(paths: Iterable[Path]) -> Iterator[str]:
    """A message for each link that leads nowhere."""
    for path in paths:
        for number, target in links(path.read_text()):
            if problem := _problem(path, target):
                yield f"{path}:{number}: {target}: {problem}"


def links(text: str) -> Iterator[tuple[int, str]]:
    """Line and target of each link outside code."""
    text = CODE.sub("", FENCED.sub(lambda block: "\n" * block[0].count("\n"), text))
    for match in LINK.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match[1]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings; a repeated heading gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
        name = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", name).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def _problem(page: Path, target: str) -> str | None:
    if ELSEWHERE.match(target):
        return None
    name, _, anchor = unquote(target).partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return "no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
        return "no such heading"
    return None


if __name__ == "__main__":
    sys.exit(main())
