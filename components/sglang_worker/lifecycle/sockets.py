"""Unsent response bytes on our own TCP sockets, from /proc (Linux only).

On Dynamo's TCP response plane every response stream is an outbound socket of the worker. The
runtime's in-flight gauge falls when the last chunk was handed over, not when it was sent: with a
slow reader megabytes may still sit in the kernel (FACTS section 3). ``tx_queue`` of
``/proc/self/net/tcp{,6}`` is what the peer has not acknowledged yet.

Counted are connected sockets that this process opened itself. Listening sockets and those accepted
from them (request plane, system server) carry no response stream. A socket that the runtime has
closed with bytes unsent belongs to no process any more (inode 0). Whose it was cannot be asked,
and it may have been closed before the first reading; so every such outbound socket of the network
namespace counts, except those that an earlier reading saw with another process. Where several
workers share a namespace one may so wait for the other's reader, which is better than to call an
answer sent that a container's end would cut off.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

LISTEN = "0A"
CLOSED_STATES = frozenset({"06", "07"})  # TIME_WAIT, CLOSE: nothing left to send


class TcpSocket(msgspec.Struct, frozen=True):
    """One row of /proc/net/tcp. Addresses are the kernel's own hex text, only compared."""

    local: str
    remote: str
    state: str
    unsent_bytes: int
    inode: int

    @property
    def local_port(self) -> str:
        return self.local.rpartition(":")[2]

    @property
    def pair(self) -> tuple[str, str]:
        return self.local, self.remote


def parse_table(text: str) -> list[TcpSocket]:
    """Parse the text of /proc/net/tcp or tcp6. Raises ValueError on a line it cannot read."""
    return [_parse_row(line) for line in text.splitlines()[1:] if line.strip()]


def _parse_row(line: str) -> TcpSocket:
    fields = line.split()
    try:
        unsent_hex = fields[4].partition(":")[0]
        return TcpSocket(fields[1], fields[2], fields[3], int(unsent_hex, 16), int(fields[9]))
    except (IndexError, ValueError):
        raise ValueError(f"unreadable line in the TCP socket table: {line!r}") from None


def outbound(table: Iterable[TcpSocket], own_inodes: Collection[int]) -> list[TcpSocket]:
    """The sockets of ``own_inodes`` that were connected, not accepted, by their local port."""
    rows = list(table)
    listening = {row.local_port for row in rows if row.state == LISTEN and row.inode in own_inodes}
    return [
        row
        for row in rows
        if row.inode in own_inodes
        and row.state not in CLOSED_STATES
        and row.state != LISTEN
        and row.local_port not in listening
    ]


def orphans(table: Iterable[TcpSocket], foreign: Collection[tuple[str, str]]) -> list[TcpSocket]:
    """Connected sockets that were closed with bytes unsent, without those of ``foreign`` pairs and
    those that somebody's listener accepted."""
    rows = list(table)
    listening = {row.local_port for row in rows if row.state == LISTEN}
    return [
        row
        for row in rows
        if row.inode == 0
        and row.unsent_bytes
        and row.pair not in foreign
        and row.local_port not in listening
    ]


class UnsentBytesReader:
    """`read` returns the bytes that have not left this process's response sockets yet."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self._foreign: set[tuple[str, str]] = set()

    def read(self) -> int:
        """Raises OSError or ValueError when /proc cannot be read: then nothing is known."""
        own = self._own_inodes()
        rows: list[TcpSocket] = []
        for name in ("tcp", "tcp6"):
            rows += self._read_table(name)
        ours = outbound(rows, own)
        closed = orphans(rows, self._foreign)
        present = {row.pair for row in rows if row.inode == 0}
        self._foreign = {row.pair for row in rows if row.inode and row.inode not in own} | (
            self._foreign & present
        )
        return sum(row.unsent_bytes for row in (*ours, *closed))

    def _read_table(self, name: str) -> list[TcpSocket]:
        path = self._proc / "net" / name
        try:
            return parse_table(path.read_text())
        except FileNotFoundError:
            if name == "tcp":
                raise
            return []  # a kernel without IPv6

    def _own_inodes(self) -> set[int]:
        inodes = set()
        for entry in os.scandir(self._proc / "fd"):
            try:
                target = os.readlink(entry.path)
            except FileNotFoundError:
                continue  # closed since the folder was listed
            if target.startswith("socket:["):
                inodes.add(int(target[8:-1]))
        return inodes
