"""The documentation: links lead somewhere, and generated pages match the code."""

from __future__ import annotations

from pathlib import Path

import check_links
import pytest
from docs_reference.__main__ import pages

from tests.support import REPOSITORY

PAGE = """\
# A page

## Use `fab`, twice
## Use `fab`, twice

[here](#use-fab-twice-1), [there](other.md#what-is-new), [a folder](folder), [a site](https://example.org/x#y)
`[code](missing.md)`

```
# no heading
[code](missing.md)
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "other.md").write_text("# What is new?\n")
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    return page


def test_links_to_files_folders_and_headings_are_accepted(page: Path) -> None:
    assert list(check_links.check([page])) == []


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("missing.md", "no such file"),
        ("other.md#what-is-old", "no such heading"),
        ("#no-heading", "no such heading"),
        ("#use-fab-twice-2", "no such heading"),
    ],
)
def test_a_broken_link_is_reported_with_its_line(page: Path, target: str, problem: str) -> None:
    page.write_text(f"{PAGE}\n[broken]({target})\n")
    line = PAGE.count("\n") + 2
    assert list(check_links.check([page])) == [f"{page}:{line}: {target}: {problem}"]


def test_generated_pages_match_the_code() -> None:
    outdated = [path.name for path, text in pages().items() if path.read_text() != text]
    assert outdated == [], "run scripts/docs-reference"


def test_the_readme_fits_on_two_screens() -> None:
    assert len((REPOSITORY / "README.md").read_text().splitlines()) < 120
