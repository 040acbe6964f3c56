"""Writes the pages: options, commands, metrics, exit codes, Ansible's variables.

The layers in the architecture page come from setup.cfg. A test fails if a page differs from the
code.
"""

from __future__ import annotations

import configparser
import os
import re
from pathlib import Path
from unittest import mock

from docs_reference import commands, declarations
from docs_reference.markdown import page

REPOSITORY = Path(__file__).resolve().parents[2]
ARCHITECTURE = REPOSITORY / "docs/explanation/architecture.md"
LAYERS = re.compile(r"(<!-- layers of setup\.cfg;.*?-->\n```\n).*?(```\n)", re.DOTALL)


def main() -> None:
    for path, text in pages().items():
        path.write_text(text)
        print(f"wrote {path.relative_to(REPOSITORY)}")


def pages() -> dict[Path, str]:
    """The text of every generated page, the same on every machine."""
    blocks = {
        "options": ("Training options", declarations.describe_options()),
        "commands": ("Commands", commands.describe_commands()),
        "metrics": ("Metrics", declarations.describe_metrics()),
        "exit-codes": ("Exit codes", declarations.describe_exit_codes()),
        "ansible": ("Ansible roles and variables", declarations.describe_roles()),
    }
    folder = REPOSITORY / "docs/reference"
    with (
        mock.patch.dict(os.environ, {"XDG_STATE_HOME": "~/.local/state"}),
        mock.patch("cluster.emulate.__main__.host_arch", return_value="amd64"),
    ):
        found = {folder / f"{name}.md": page(*content) for name, content in blocks.items()}
    found[ARCHITECTURE] = LAYERS.sub(rf"\g<1>{layers()}\g<2>", ARCHITECTURE.read_text())
    return found


def layers() -> str:
    """The layers of setup.cfg's contract, the highest first."""
    parser = configparser.ConfigParser()
    parser.read(REPOSITORY / "setup.cfg")
    lines = parser["importlinter:contract:layers"]["layers"].split("\n")
    return "".join(f"{re.sub(r'[()]', '', line).replace(' : ', ', ')}\n" for line in lines if line)


if __name__ == "__main__":
    main()
