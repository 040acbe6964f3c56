"""Requests to the metrics server: each is answered or closed, and the server keeps running."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
from pathlib import Path
from random import Random

from edgeddl.metrics.listening import listen
from edgeddl.metrics.server import Answer, MetricsServer
from fuzzing.mutation import mutate

SAMPLES = (
    b"GET / HTTP/1.1\r\nHost: localhost:9100\r\nAccept: */*\r\n\r\n",
    b"HEAD /?a=b HTTP/1.0\r\nHost: evil.example\r\n\r\n",
)
TOKENS = (
    *(b"\r\n", b"\r\n\r\n", b"\n", b"Host: evil.example\r\n", b"Host:", b":", b" ", b"\0", b"[::1"),
    *(b"GET ", b"POST ", b"/", b"http://evil.example/", b"%00", b"HTTP/1.1", b"\xff", b"a: b\r\n"),
)
FOREIGN = re.compile(rb"\r\n\s*host\s*:[^\r\n]*evil", re.IGNORECASE)
ANSWER = re.compile(rb"HTTP/1\.1 (200|400|403|404|405|431) ")


class _Http:
    def __init__(self, folder: Path) -> None:
        listener = listen("127.0.0.1", 0, option="--port", who="the fuzzer")
        self._server = MetricsServer(listener, {"/": lambda: Answer(b"hello")})
        self._errors: list[str] = []  # asyncio logs an exception in a handler and continues
        logging.getLogger("asyncio").addFilter(self._note_error)

    def _note_error(self, record: logging.LogRecord) -> bool:
        self._errors.append(str(record.exc_info or record.msg))
        return False

    def make(self, random: Random) -> bytes:
        return mutate(random, random.choice(SAMPLES), TOKENS)

    def check(self, data: bytes) -> None:
        answer = self._send(data)
        assert not self._errors, self._errors.pop()
        assert not answer or ANSWER.match(answer), f"answered {answer[:100]!r}"
        request = data.partition(b"\r\n\r\n")[0]
        served = answer.startswith(b"HTTP/1.1 200 ")
        assert not (served and FOREIGN.search(request)), "answered a request for a foreign host"

    def _send(self, request: bytes) -> bytes:
        address = (self._server.address, self._server.port)
        with socket.create_connection(address, timeout=30) as client:
            with contextlib.suppress(OSError):  # rejected before all of it was sent
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                return b"".join(iter(lambda: client.recv(65536), b""))
        return b""


make_target = _Http
