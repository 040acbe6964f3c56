"""A fake of Grafana's package: its user, folders and unit, and a server on its port.

Grafana itself is not available everywhere. With the fake, the role is tested except for Grafana's
own behaviour: checksum, settings, password, dashboards, addresses.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

CONTROL = """\
Package: grafana
Version: 12.0.0
Architecture: all
Maintainer: edgeddl's tests
Description: stands in Grafana's place
"""
INSTALLED = """\
#!/bin/sh
set -e
id grafana >/dev/null 2>&1 || useradd --system --no-create-home grafana
"""
UNIT = """\
[Service]
User=grafana
ExecStart=/usr/share/grafana/bin/grafana
[Install]
WantedBy=multi-user.target
"""
PROGRAM = """\
#!/usr/bin/python3
import http.server, os, re

password = os.environ["GF_SECURITY_ADMIN_PASSWORD"]
path = re.fullmatch(r"\\$__file\\{(.+)\\}", password)[1]
assert len(open(path).read()) == 24
address = os.environ["GF_SERVER_HTTP_ADDR"], int(os.environ["GF_SERVER_HTTP_PORT"])
http.server.HTTPServer(address, http.server.BaseHTTPRequestHandler).serve_forever()
"""


def build(folder: Path) -> tuple[Path, str]:
    """Build the package and return it with its checksum."""
    tree = folder / "tree"
    files = {
        "DEBIAN/control": CONTROL,
        "DEBIAN/postinst": INSTALLED,
        "lib/systemd/system/grafana-server.service": UNIT,
        "usr/share/grafana/bin/grafana": PROGRAM,
        "etc/grafana/provisioning/datasources/.keep": "",
        "etc/grafana/provisioning/dashboards/.keep": "",
    }
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755 if content.startswith("#!") else 0o644)
    package = folder / "grafana.deb"
    command = ["dpkg-deb", "--build", "--root-owner-group", str(tree), str(package)]
    subprocess.run(command, check=True, capture_output=True)
    return package, hashlib.sha256(package.read_bytes()).hexdigest()
