"""Runs commands on a board over ssh."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Sequence
from typing import Any

import fabric
import paramiko
from invoke.exceptions import ThreadException

from cluster.errors import ClusterError
from cluster.inventory_file import Host
from cluster.tasks.ssh_settings import SshSettings, find_settings, ssh_command

# Timeout of a silent connection; Linux's own is 15 minutes.
LOST_AFTER_SECONDS = 30
LAST_LINES = 10


class BoardError(ClusterError):
    """An error of one board."""

    exit_code = 1


class ConnectionLost(BoardError):
    """The board stopped answering."""


class CommandFailed(BoardError):
    """A command exited with an error; `last_lines` is the end of its output."""

    def __init__(self, code: int, output: str) -> None:
        super().__init__(f"exit code {code}")
        self.code = code
        self.last_lines = output.strip().splitlines()[-LAST_LINES:]


class Board:
    """A board; connects on first use."""

    def __init__(self, host: Host) -> None:
        self.name = host.name
        self.host = host
        self.environment = str(host.variables.get("python_env_path", "/opt/edgeddl/venv"))
        self.work = str(host.variables.get("edgeddl_work", "/opt/edgeddl/work"))
        self._connection: fabric.Connection | None = None

    def run(self, line: str, *, hide: bool | str = True, codes: Sequence[int] = (0,)) -> str:
        """Run a shell command line in the work folder with the environment active; return stdout.

        Output is also printed as it arrives, unless `hide` is True, or "stdout" to hide only that.
        Exit codes other than `codes` are errors.
        """
        result = self._run(line, hide)
        if result.exited not in codes:
            raise CommandFailed(result.exited, result.stderr.strip() or result.stdout)
        return str(result.stdout)

    def _run(self, line: str, hide: bool | str) -> Any:
        connection = self.connect()
        try:
            result = connection.run(
                self._shell(line), hide=hide, warn=True, in_stream=False, encoding="utf-8"
            )
        except (OSError, EOFError, paramiko.SSHException, ThreadException) as error:
            raise self._lost() from error
        if result.exited == -1:  # the channel was closed before the command ended
            raise self._lost()
        return result

    def _shell(self, line: str) -> str:
        """Wrap a command line for sh; only provisioned boards have the profile script."""
        activate = shlex.quote(f"{self.environment}/bin/activate")
        work = shlex.quote(self.work)
        prepared = (
            "for file in /etc/profile.d/edgeddl.sh " + activate + "; do"
            ' [ ! -r "$file" ] || . "$file"; done;'
            f" cd {work} 2>/dev/null || cd; {line}"
        )
        return f"sh -c {shlex.quote(prepared)}"

    def _lost(self) -> ConnectionLost:
        self.close()
        return ConnectionLost("connection lost")

    def connect(self) -> fabric.Connection:
        if self._connection is None:
            settings = find_settings(self.host)
            connection = make_connection(settings)
            self._open(connection, settings)
            self._connection = connection
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, connection: fabric.Connection, settings: SshSettings) -> None:
        log_in = shlex.join(ssh_command(self.host))
        try:
            connection.open()
        except paramiko.BadHostKeyException:
            raise BoardError(
                "the host key has changed",
                hint=f"if you reflashed {self.name}: ssh-keygen -R {settings.host}",
            ) from None
        except paramiko.AuthenticationException as error:
            raise BoardError(
                f"login refused: {error}", hint=f"this must work without a prompt: {log_in}"
            ) from None
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise BoardError(_unreachable(error, settings)) from None
        _watch(connection)


def make_connection(settings: SshSettings) -> fabric.Connection:
    """Create a connection that refuses unknown host keys."""
    connection = fabric.Connection(
        settings.host,
        user=settings.user,
        port=settings.port,
        # `settings` already contains the user's ssh configuration
        config=fabric.Config(ssh_config=paramiko.SSHConfig()),
        connect_timeout=settings.connect_seconds,
        gateway=settings.proxy or False,
        connect_kwargs={
            "key_filename": list(settings.keys),
            "allow_agent": settings.use_agent,
            "look_for_keys": False,
            "banner_timeout": settings.connect_seconds,
            "auth_timeout": settings.connect_seconds,
        },
    )
    connection.client.set_missing_host_key_policy(RefuseUnknown())
    for path in settings.known_hosts:
        connection.client.load_system_host_keys(path)
    return connection


class RefuseUnknown(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:
        raise BoardError(
            f"unknown host key: {key.get_name()} {key.fingerprint}",
            hint="log in once with ssh, compare the fingerprint and accept it",
        )


def _watch(connection: fabric.Connection) -> None:
    """Detect a lost connection, even while nothing is sent."""
    transport = connection.transport
    transport.set_keepalive(LOST_AFTER_SECONDS // 3)
    if isinstance(transport.sock, socket.socket) and hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = LOST_AFTER_SECONDS * 1000
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def _unreachable(error: Exception, settings: SshSettings) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {settings.connect_seconds} s"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        error = next(iter(error.errors.values()))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"unreachable: {reason or type(error).__name__}"
