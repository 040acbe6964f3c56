"""Downloads a file over HTTP and resumes partial downloads."""

from __future__ import annotations

import http
import http.client
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import edgeddl
from edgeddl.errors import DataError
from edgeddl.log import logger
from edgeddl.terminal import ProgressBar

TIMEOUT_SECONDS = 30.0  # without data from the server
_CHUNK_BYTES = 2**18
_HINT_RESUME = "run the same command again to resume the download"


@dataclass(frozen=True)
class Archive:
    """A file to download, with its size and its SHA-256, or MD5 if only that is published."""

    name: str
    url: str
    size: int
    sha256: str = ""
    md5: str = ""

    @property
    def algorithm(self) -> str:
        return "sha256" if self.sha256 else "md5"

    @property
    def checksum(self) -> str:
        return self.sha256 or self.md5


class Download:
    """Downloads the missing part of an archive and appends it to a file."""

    def __init__(self, archive: Archive, file: BinaryIO, *, timeout_seconds: float) -> None:
        self._archive = archive
        self._file = file
        self._timeout_seconds = timeout_seconds

    def run(self, *, progress: bool) -> None:
        """Download the rest; on an error, keep the part that was received."""
        if self._size() == self._archive.size:
            return
        self._check_space()
        logger.info("downloading %s", self._archive.url)
        with self._connect() as response:
            self._copy(response, progress=progress)
        self._check_size()

    def _size(self) -> int:
        return self._file.seek(0, os.SEEK_END)

    def _check_space(self) -> None:
        needed = self._archive.size - self._size()
        free = shutil.disk_usage(Path(self._file.name).parent).free
        if free < needed:
            raise DataError(
                f"{self._file.name} needs {needed:,} more bytes, but only {free:,} are free",
                hint="free some space, or choose another folder with --data-dir",
            )

    def _connect(self) -> http.client.HTTPResponse:
        """A response that starts at the first missing byte, or else at byte 0."""
        have = self._size()
        response = self._request(have)
        if response is not None and _first_byte(response) == have:
            return response
        self._file.truncate(0)
        if response is not None and _first_byte(response) == 0:
            return response
        response = self._request(0)
        if response is None or _first_byte(response) != 0:
            raise DataError(
                f"{self._archive.url}: the server does not send the file from its start"
            )
        return response

    def _request(self, first_byte: int) -> http.client.HTTPResponse | None:
        """The server's response; None if it has no data from that byte on."""
        headers = {"User-Agent": f"edgeddl/{edgeddl.__version__}"}
        if first_byte:
            headers["Range"] = f"bytes={first_byte}-"
        try:
            with self._reporting_server_errors():
                request = urllib.request.Request(self._archive.url, headers=headers)
                response: http.client.HTTPResponse = urllib.request.urlopen(
                    request, timeout=self._timeout_seconds
                )
        except _RangeRefused:
            return None
        self._check_announced_size(response)
        return response

    def _check_announced_size(self, response: http.client.HTTPResponse) -> None:
        """Reject an error or login page before it overwrites the part already received."""
        if response.length is None:
            return
        announced = (_first_byte(response) or 0) + response.length
        if announced != self._archive.size:
            response.close()
            raise DataError(
                f"{self._archive.url} has {announced:,} bytes, expected {self._archive.size:,}",
                hint="the server or a proxy sends a different file; try another --url",
            )

    def _copy(self, response: http.client.HTTPResponse, *, progress: bool) -> None:
        size = self._size()
        with ProgressBar(
            desc=self._archive.name,
            total=self._archive.size,
            initial=size,
            unit="B",
            unit_scale=True,
            disable=not progress,
        ) as bar:
            while size <= self._archive.size:
                with self._reporting_server_errors():
                    chunk = response.read1(_CHUNK_BYTES)
                if not chunk:
                    return
                self._file.write(chunk)
                size += len(chunk)
                bar.update(len(chunk))

    def _check_size(self) -> None:
        found, expected = self._size(), self._archive.size
        if found > expected:
            self._file.truncate(0)
            raise DataError(f"{self._archive.url} sent more than the expected {expected:,} bytes")
        if found < expected:
            raise DataError(
                f"{self._archive.url}: the connection ended after {found:,} of {expected:,} bytes",
                hint=_HINT_RESUME,
            )

    @contextmanager
    def _reporting_server_errors(self) -> Iterator[None]:
        """Turn errors of the connection into a DataError with the address."""
        try:
            yield
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise _RangeRefused from error
            raise DataError(
                f"{self._archive.url}: HTTP {error.code} {error.reason}",
                hint=f"try again later: {_HINT_RESUME}",
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise DataError(
                f"cannot download {self._archive.url}: {reason}",
                hint=f"check the network, then {_HINT_RESUME}",
            ) from error


class _RangeRefused(Exception):
    """The server has no data from the requested byte on."""


def _first_byte(response: http.client.HTTPResponse) -> int | None:
    """The position in the file at which a response starts; None if it is not stated."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return 0
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None
