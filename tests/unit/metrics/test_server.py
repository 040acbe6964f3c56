"""The HTTP server, with misbehaving clients over raw sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from edgeddl.errors import ConfigError
from edgeddl.metrics import server as server_module
from edgeddl.metrics.listening import listen, own_address
from edgeddl.metrics.server import CONNECTIONS, Answer, MetricsServer

LARGE = b"x" * 50_000_000


def start() -> MetricsServer:
    listener = listen("127.0.0.1", 0, option="--port", who="a test")
    return MetricsServer(listener, {"/": lambda: Answer(b"hello"), "/large": lambda: Answer(LARGE)})


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    running = start()
    yield running
    running.close()


def connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection((server.address, server.port), timeout=30)


def send(server: MetricsServer, request: bytes) -> bytes:
    """The complete response to a request."""
    with connect(server) as client, contextlib.suppress(OSError):
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))
    return b""


def get(server: MetricsServer, path: str = "/") -> bytes:
    return send(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def is_well(server: MetricsServer) -> bool:
    return get(server).endswith(b"\r\n\r\nhello")


def test_an_ordinary_request(server: MetricsServer) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=30) as answer:
        assert answer.read() == b"hello"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_head_has_the_length_but_no_body(server: MetricsServer) -> None:
    answer = send(server, b"HEAD / HTTP/1.1\r\n\r\n")
    assert b"Content-Length: 5\r\n" in answer and answer.endswith(b"\r\n\r\n")


def test_a_query_does_not_matter(server: MetricsServer) -> None:
    assert get(server, "/?anything=%00").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics%00 HTTP/1.1\r\n\r\n", 404),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 404),
        (b"POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabcd", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),  # TLS
        (bytes(range(256)) + b"\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 100_000, 431),
        (b"G" * 1_000_000, 431),
    ],
)
def test_malformed_requests_are_refused(
    server: MetricsServer, request_bytes: bytes, status: int
) -> None:
    answer = send(server, request_bytes)
    # A client that still sends when it is refused may lose the answer, but never gets another.
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()) or (status == 431 and not answer)
    assert is_well(server)


@pytest.mark.parametrize("fragment", [b"", b"GET", b"GET / HTTP/1.1\r\n", b"\r\n"])
def test_half_a_request_gets_no_answer(server: MetricsServer, fragment: bytes) -> None:
    assert send(server, fragment) == b""
    assert is_well(server)


def test_slow_clients_are_disconnected(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both a silent client and one that sends a byte now and then."""
    monkeypatch.setattr(server_module, "CLIENT_SECONDS", 0.2)
    with connect(server) as silent, connect(server) as dripping:
        with contextlib.suppress(OSError):
            while True:  # ends when the connection is cut; a test that hangs is reported
                dripping.sendall(b"G")
                time.sleep(0.05)
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
    monkeypatch.undo()  # a busy machine may be slower than that
    assert is_well(server)


def test_a_client_that_does_not_read_is_disconnected(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CLIENT_SECONDS", 2.0)  # for the answer to begin
    with connect(server) as client:
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert client.recv(1, socket.MSG_PEEK)  # the answer has begun
        while server._clients:
            time.sleep(0.01)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            received = sum(map(len, iter(lambda: client.recv(1 << 20), b"")))
        assert received < len(LARGE)
    monkeypatch.undo()
    assert is_well(server)


def test_many_silent_clients_do_not_keep_others_out(server: MetricsServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(5 * CONNECTIONS):
            stack.enter_context(connect(server))
        for _ in range(3):
            assert is_well(server)
        assert len(server._clients) <= CONNECTIONS
        assert [t.name for t in threading.enumerate()].count("edgeddl-metrics") == 1


def test_closing_ends_the_thread_and_frees_the_port() -> None:
    server = start()
    with connect(server) as client:
        client.sendall(b"GET /")
        server.close()
        server.close()  # twice is no harm
        assert "edgeddl-metrics" not in [thread.name for thread in threading.enumerate()]
    listen("127.0.0.1", server.port, option="--port", who="a test").close()


def test_a_port_in_use(server: MetricsServer) -> None:
    with pytest.raises(ConfigError) as caught:
        listen("127.0.0.1", server.port, option="--metrics-port", who="rank 3's metrics")
    assert f"cannot listen on port {server.port} of 127.0.0.1" in str(caught.value)
    assert "rank 3's metrics" in str(caught.value) and "another --metrics-port" in str(caught.value)


@pytest.mark.parametrize("address", ["203.0.113.1", "no.such.host.invalid", "999.1.1.1", "::ffff"])
def test_an_address_of_another_machine(address: str) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        listen(address, 0, option="--port", who="a test")


def test_a_port_above_all_ports() -> None:
    with pytest.raises(ConfigError, match="65536 for a test is above 65535"):
        listen("127.0.0.1", 65536, option="--port", who="a test")


def test_a_network_selects_the_address_of_the_machine_in_it() -> None:
    assert own_address("127.0.0.0/8") in ("127.0.0.1", "127.0.0.0")
    assert own_address("10.0.0.7") == "10.0.0.7"


@pytest.mark.parametrize("network", ["203.0.113.0/24", "10.0.0.0/99", "pi/4", "/"])
def test_a_network_this_machine_is_not_in(network: str) -> None:
    with pytest.raises(ConfigError, match=r"no address in the network|is not a network"):
        own_address(network)


def test_a_machines_own_addresses() -> None:
    """Each is found by its network."""
    try:
        shown = subprocess.run(["ip", "-json", "-4", "address"], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no ip command")
    for card in json.loads(shown.stdout):
        for info in card["addr_info"]:
            if info["prefixlen"] < 32 and card["ifname"] != "lo":
                assert own_address(f"{info['local']}/{info['prefixlen']}") == info["local"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:9100", "localhost.", "pi.localhost", "127.0.0.1", "127.0.0.1:9100",
     "127.1.2.3", "[::1]", "[::1]:9100", socket.gethostname(), f"{socket.gethostname()}.local:1"],
)  # fmt: skip
def test_a_loopback_server_answers_to_local_names(server: MetricsServer, host: str) -> None:
    answer = send(server, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert answer.endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize(
    "fields",
    ["Host: evil.example", "host:evil.example:9100", "HOST : evil.example", "Host: 203.0.113.1",
     "Host: localhost.evil.example", "Host: 127.0.0.1.evil.example", "Host: localhost@evil.example",
     "Host:", "Host: [::2]", "Host: localhost\r\nHost: evil.example", "Host: \0", "Host: :80"],
)  # fmt: skip
def test_a_loopback_server_refuses_foreign_names(server: MetricsServer, fields: str) -> None:
    """As a browser sends them after DNS rebinding to 127.0.0.1."""
    answer = send(server, f"GET / HTTP/1.1\r\n{fields}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ") and b"hello" not in answer
    assert b"only requests for localhost" in answer


def test_a_server_for_the_network_answers_to_any_name() -> None:
    listener = listen("0.0.0.0", 0, option="--port", who="a test")
    server = MetricsServer(listener, {"/": lambda: Answer(b"hello")})
    try:
        answer = send(server, b"GET / HTTP/1.1\r\nHost: pi-01.example\r\n\r\n")
    finally:
        server.close()
    assert answer.endswith(b"\r\n\r\nhello")
