"""One file from one address: resumed where it stopped, checked, and in place only when whole."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

import fedrl
from fedrl.core import file_locks
from fedrl.core.types import UserError

CHUNK = 1 << 18
TIMEOUT = 30.0
"""Seconds without a byte before a connection counts as broken."""


class NotTheFile(Exception):
    """The address answered, but with something else than the file."""


FAILURES = (OSError, http.client.HTTPException, NotTheFile, ValueError)
"""What an address or a disk can do to `download`; `failure_words` says it.

urllib's errors are OSErrors; an address that is none ("http://[::1") is a ValueError.
"""


def download(url: str, target: Path, sha256: str, console: Console, most: int) -> None:
    """`target` appears when it is whole and its sha256 right; more than `most` bytes are refused.

    What arrived of a broken download stays in `target`.part, and the next call goes on from there.
    """
    part = target.with_name(target.name + ".part")
    with open(part, "ab") as file:
        _claim(file, part)
        try:
            with _open(url, file.tell()) as response:
                if response.status != http.client.PARTIAL_CONTENT:
                    _start_over(file)  # a server that cannot resume sends all of it
                _copy(response, file, target.name, console, most)
            file.flush()
            os.fsync(file.fileno())
            digest = sha256_of(part)
            if digest != sha256:
                _start_over(file)
                raise NotTheFile(f"{url} has sha256 {digest}, not {sha256}: not the published file")
            os.replace(part, target)
        finally:
            if part.exists() and part.stat().st_size == 0:
                part.unlink()


def _start_over(file: BinaryIO) -> None:
    file.truncate(0)
    file.seek(0)


def _claim(file: BinaryIO, part: Path) -> None:
    """Two processes that append to one file would spoil it."""
    try:
        file_locks.lock(file, wait=False)
    except BlockingIOError:
        raise UserError(f"another process is downloading {part}; wait for it") from None


def _open(url: str, start: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": f"fedrl/{fedrl.__version__}"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT
        )
    except urllib.error.HTTPError as error:
        if start and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return _open(url, 0)  # what is there is no beginning of this file
        raise
    if response.headers.get_content_type() == "text/html":
        response.close()
        raise NotTheFile(f"{url} gave a web page and not the file (a log-in, or a daily limit)")
    return response


def _copy(
    response: http.client.HTTPResponse, file: BinaryIO, name: str, console: Console, most: int
) -> None:
    start = file.tell()
    length = response.headers.get("Content-Length", "")
    total = start + int(length) if length.isascii() and length.isdigit() else None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total, completed=start)
        while chunk := response.read(CHUNK):
            file.write(chunk)
            progress.advance(task, len(chunk))
            if file.tell() > most:
                _start_over(file)
                raise NotTheFile(f"{response.url} sends more than {most:,} bytes: not the file")
    if total is not None and file.tell() < total:
        raise ConnectionResetError(f"the connection broke off after {file.tell():,} bytes")


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def failure_words(error: Exception, url: str) -> str:
    """One clause for the user: what went wrong with this address."""
    try:
        host = urllib.parse.urlsplit(url).hostname or url
    except ValueError as wrong:
        return f"{url} is no address ({wrong})"
    if isinstance(error, NotTheFile):
        return str(error)
    if isinstance(error, urllib.error.HTTPError):
        return f"{host} answered {error.code} {error.reason}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, socket.gaierror):
        return f"{host} cannot be found: this machine is offline, or the name is wrong"
    if isinstance(cause, ssl.SSLError):
        return f"{host} has no certificate that this machine trusts ({cause})"
    if isinstance(cause, TimeoutError):
        return f"{host} does not answer"
    if isinstance(cause, http.client.HTTPException):
        return f"{host} broke off ({type(cause).__name__})"
    return (
        disk_failure(error)
        or f"{host}: {cause.strerror if isinstance(cause, OSError) and cause.strerror else cause}"
    )


def disk_failure(error: Exception) -> str | None:
    """The same, where this machine's disk is to blame and no address."""
    if not isinstance(error, OSError) or isinstance(error, urllib.error.URLError):
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return f"cannot write {error.filename}: {error.strerror}" if error.filename else None
