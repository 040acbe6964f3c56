"""A local HTTP server for one file, with configurable faults."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """The served file, the faults, and the requests received (Range headers, in order).

    drop_after: end the connection after that many bytes of an answer.
    stall_after: send no more after that many bytes, but keep the connection.
    status: answer everything with this code.
    range_offset: start an answer to a Range that many bytes away from where it was asked for.
    """

    content: bytes
    ranges: bool = True
    announce_length: bool = True
    drop_after: int | None = None
    stall_after: int | None = None
    status: int | None = None
    range_offset: int = 0
    url: str = ""
    asked: list[str | None] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(server: FileServer) -> Iterator[FileServer]:
    """Serve within the block."""

    class Handler(_Handler):
        state = server

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_port}/file.tar.gz"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.stopped.set()
            http.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: FileServer

    def do_GET(self) -> None:
        state = self.state
        state.asked.append(self.headers.get("Range"))
        if state.status is not None:
            self.send_error(state.status)
            return
        start = self._start_of_range()
        if start is not None and start >= len(state.content):
            self.send_error(416)
            return
        self._send(start)

    def _start_of_range(self) -> int | None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        return int(match[1]) + self.state.range_offset if match and self.state.ranges else None

    def _send(self, start: int | None) -> None:
        state, body = self.state, self.state.content[start or 0 :]
        self.send_response(200 if start is None else 206)
        if start is not None:
            last, size = len(state.content) - 1, len(state.content)
            self.send_header("Content-Range", f"bytes {start}-{last}/{size}")
        if state.announce_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        limits = [limit for limit in (state.drop_after, state.stall_after) if limit is not None]
        self.wfile.write(body[: min(limits, default=None)])
        if state.stall_after is not None:
            state.stopped.wait()

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""
