"""Queries the firmware of a Raspberry Pi with vcgencmd."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

# vcgencmd answers in milliseconds; the timeout protects against hanging firmware.
TIMEOUT_SECONDS = 2.0
PLACES = ("usr/bin/vcgencmd", "opt/vc/bin/vcgencmd")


def ask_firmware(root: Path, *question: str) -> str | None:
    """The value in an answer such as "throttled=0x50005".

    None without vcgencmd or without permission (the user must be in the group "video").
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
    # An error has the same form and sometimes exit code 0: error=1 error_msg="..."
    found = re.fullmatch(r"(?!error)[\w()]+=(\S+)\s*", answer.stdout)
    return found[1] if found and answer.returncode == 0 else None
