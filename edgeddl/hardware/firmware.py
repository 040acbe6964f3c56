"""What a Raspberry Pi's firmware says through vcgencmd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# It answers in milliseconds; firmware that hangs must not take its reader with it.
TIMEOUT_SECONDS = 2.0
PLACES = ("usr/bin/vcgencmd", "opt/vc/bin/vcgencmd")


def ask_firmware(root: Path, *question: str) -> str | None:
    """The value in an answer such as "throttled=0x50005".

    None without vcgencmd, and where this user may not ask (the group of /dev/vcio is "video").
    """
    command = next((root / place for place in PLACES if (root / place).is_file()), None)
    if command is None:
        return None
    try:
        answer = subprocess.run(
            [command, *question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # An error has the same form, and not always an exit code: error=1 error_msg="..."
    found = re.fullmatch(r"(?!error)[\w()]+=(\S+)\s*", answer.stdout)
    return found[1] if found and answer.returncode == 0 else None
