"""A small HTTP server for metrics and the live page, which slow clients cannot block.

One thread serves all connections; rendering takes a few milliseconds. A client has a few seconds to
send its request and receive the response. If there are too many connections, the oldest is closed.

A malicious web page can make a browser send requests to the loopback interface, by a host name that
resolves to 127.0.0.1 (DNS rebinding). The Host field contains that name, so it is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from edgeddl.log import start_thread
from edgeddl.metrics.listening import is_local_host

CLIENT_SECONDS = 5.0
CLOSING_SECONDS = 1.0
CONNECTIONS = 16
LONGEST_REQUEST = 8192

LOCAL_ONLY = (
    ": this server listens on the loopback interface and answers only requests for localhost,"
    " 127.0.0.1, [::1] or this machine's name"
)
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Pages = dict[str, Callable[[], Answer]]


class MetricsServer:
    """Serves pages by path on a listening socket, in its own thread."""

    def __init__(self, listener: socket.socket, pages: Pages) -> None:
        self.address, self.port = listener.getsockname()[:2]
        self._listener = listener
        self._is_loopback = ipaddress.ip_address(self.address).is_loopback
        self._pages = pages
        self._clients: dict[asyncio.Task[None], None] = {}  # oldest first
        self._started = threading.Event()
        self._thread = start_thread(self._run, "edgeddl-metrics")
        self._started.wait()

    def close(self) -> None:
        """Stop listening and close connections, after a short time for pending responses."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closed.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._started.set()  # also if it failed to start, so that the run does not wait

    async def _serve(self) -> None:
        self._loop, self._closed = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            self._accept, sock=self._listener, limit=LONGEST_REQUEST
        )
        self._started.set()
        await self._closed.wait()
        server.close()
        if self._clients:
            await asyncio.wait(self._clients, timeout=CLOSING_SECONDS)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= CONNECTIONS:
            oldest = next(iter(self._clients))
            del self._clients[oldest]  # now, because more clients may connect before it ends
            oldest.cancel()
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = None
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                writer.write(self._respond(await _read_request(reader)))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError, asyncio.CancelledError):
            pass  # the client is too slow or has disconnected
        finally:
            writer.transport.abort()  # no effect on a connection that was closed properly
            self._clients.pop(task, None)

    def _respond(self, request: bytes | None) -> bytes:
        if request is None:
            return _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        line, *fields = request.split(b"\r\n")
        words = line.split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
            return _error(HTTPStatus.BAD_REQUEST)
        if self._is_loopback and not all(map(is_local_host, _hosts(fields))):
            return _error(HTTPStatus.FORBIDDEN, LOCAL_ONLY)
        if words[0] not in (b"GET", b"HEAD"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, Allow="GET, HEAD")
        path = words[1].split(b"?", 1)[0].decode("latin-1")
        if path not in self._pages:
            return _error(HTTPStatus.NOT_FOUND)
        return _render(HTTPStatus.OK, self._pages[path](), with_body=words[0] == b"GET")


async def _read_request(reader: asyncio.StreamReader) -> bytes | None:
    """Read a request up to the empty line; None if it is too long."""
    with contextlib.suppress(asyncio.LimitOverrunError):
        return await reader.readuntil(b"\r\n\r\n")
    return None


def _hosts(fields: Iterable[bytes]) -> list[str]:
    """The values of the Host fields of a request."""
    pairs = (field.partition(b":") for field in fields)
    return [value.decode("latin-1") for name, _, value in pairs if name.strip().lower() == b"host"]


def _error(status: HTTPStatus, reason: str = "", **headers: str) -> bytes:
    text = f"{status.value} {status.phrase}{reason}\n"
    return _render(status, Answer(text.encode(), headers=headers))


def _render(status: HTTPStatus, answer: Answer, *, with_body: bool = True) -> bytes:
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        "Connection": "close",
        **SECURITY_HEADERS,
        **answer.headers,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + (answer.body if with_body else b"")
