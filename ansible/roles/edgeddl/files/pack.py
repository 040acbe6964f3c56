"""Pack files into an archive that is named after its content, and print that name.

    pack.py FOLDER NAME BASE [PATH ...]

writes FOLDER/NAME-<checksum>.tar with all files below BASE, or those of its PATHs. The same files
make the same archive, whatever their times and owners: boards that have it need no new one.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

# What Python and compilers leave in a checkout.
LEFT_OUT = {".pyc", ".so", ".egg-info"}
# Which boards there are says nothing of the edgeddl that they shall have.
INVENTORIES = "inventory"


def files_below(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for child in sorted(path.iterdir()) if path.is_dir() else ():
        if not is_left_out(child):
            yield from files_below(child)


def is_left_out(path: Path) -> bool:
    return path.suffix in LEFT_OUT or path.name == INVENTORIES


def render_archive(base: Path, files: Iterable[Path]) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w") as archive:
        for file in files:
            member = tarfile.TarInfo(str(file.relative_to(base)))
            member.size = file.stat().st_size
            member.mode = 0o644
            with file.open("rb") as content:
                archive.addfile(member, content)
    return memory.getvalue()


def main(folder: Path, name: str, base: Path, paths: list[Path]) -> None:
    files = [file for path in paths or [base] for file in files_below(path)]
    if not files:
        sys.exit(f"error: there are no files in {base}\n  hint: is it the right folder?")
    content = render_archive(base, files)
    target = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.tar"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")
        part.write_bytes(content)
        part.replace(target)
    print(target.name)


if __name__ == "__main__":
    top = Path(sys.argv[3])
    main(Path(sys.argv[1]), sys.argv[2], top, [top / path for path in sys.argv[4:]])
