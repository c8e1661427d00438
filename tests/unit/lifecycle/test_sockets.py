from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from sglang_worker.lifecycle.sockets import UnsentBytesReader, outbound, parse_table

from tests.support.wait import wait_until

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when inode\n"


def row(local: str, remote: str, state: str, unsent: int, inode: int) -> str:
    return (
        f"   0: 0100007F:{local} 0100007F:{remote} {state} {unsent:08X}:00000000"
        f" 00:00000000 00000000     0        0 {inode} 1 0000000000000000 20 0 0 10 -1\n"
    )


def test_a_table_is_parsed_to_sockets() -> None:
    (parsed,) = parse_table(HEADER + row("1F90", "C350", "01", 0x2A, 77))
    assert parsed.local == "0100007F:1F90" and parsed.remote == "0100007F:C350"
    assert (parsed.state, parsed.unsent_bytes, parsed.inode) == ("01", 42, 77)


def test_an_unreadable_line_is_an_error_and_not_zero() -> None:
    with pytest.raises(ValueError, match="unreadable"):
        parse_table(HEADER + "  0: garbage\n")


def test_only_our_own_outbound_connections_count() -> None:
    text = HEADER
    text += row("1F90", "0000", "0A", 0, 1)  # our listener
    text += row("1F90", "C350", "01", 5, 2)  # accepted by it
    text += row("C351", "2328", "01", 7, 3)  # ours, outbound
    text += row("C352", "2328", "01", 9, 4)  # another process's
    text += row("C353", "2328", "06", 0, 5)  # TIME_WAIT
    assert [found.inode for found in outbound(parse_table(text), {1, 2, 3, 5})] == [3]


class Proc:
    """A made-up /proc/self."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "net").mkdir()
        (folder / "fd").mkdir()

    def show(self, *rows: str, own: set[int]) -> None:
        (self.folder / "net" / "tcp").write_text(HEADER + "".join(rows))
        for entry in (self.folder / "fd").iterdir():
            entry.unlink()
        for number, inode in enumerate(own):
            (self.folder / "fd" / str(number)).symlink_to(f"socket:[{inode}]")


def test_bytes_of_a_socket_that_was_closed_unsent_go_on_counting(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    reader = UnsentBytesReader(tmp_path)
    theirs = row("C359", "2328", "01", 50, 9)
    proc.show(row("C351", "2328", "01", 100, 3), theirs, own={3})
    assert reader.read() == 100
    orphan = row("C351", "2328", "04", 60, 0)  # FIN_WAIT1, no owner
    stranger = row("C359", "2328", "04", 50, 0)
    proc.show(orphan, stranger, own=set())
    assert reader.read() == 60
    assert reader.read() == 60
    proc.show(stranger, own=set())
    assert reader.read() == 0


def test_bytes_of_a_socket_that_was_closed_before_the_first_reading_count(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    accepted = row("1F90", "C350", "04", 9, 0)  # somebody's slow HTTP client
    proc.show(row("1F90", "0000", "0A", 0, 8), accepted, row("C351", "2328", "04", 60, 0), own={3})
    assert UnsentBytesReader(tmp_path).read() == 60


def test_without_the_table_nothing_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    with pytest.raises(FileNotFoundError):
        UnsentBytesReader(tmp_path).read()


@pytest.mark.skipif(not os.path.exists("/proc/self/net/tcp"), reason="needs Linux")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_real_unsent_bytes_are_seen_until_the_peer_reads_them(family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        try:
            listener.bind(("::1" if family is socket.AF_INET6 else "127.0.0.1", 0))
        except OSError:
            pytest.skip("no IPv6 here")
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.listen()
        # The peer runs in another process in real life; a forked child stands for it here, so that
        # the listening socket is not ours.
        child = os.fork()
        if child == 0:
            accepted, _ = listener.accept()
            accepted.recv(1)
            while accepted.recv(1 << 16):
                pass
            os._exit(0)
        address = listener.getsockname()
    reader = UnsentBytesReader()
    sender = socket.create_connection(address[:2])
    sender.setblocking(False)
    os.kill(child, 19)
    try:
        while True:
            sender.send(b"x" * 65536)
    except BlockingIOError:
        pass
    assert reader.read() > 0
    os.kill(child, 18)
    sender.setblocking(True)
    sender.sendall(b"end")
    while reader.read():
        os.sched_yield()
    sender.close()
    os.waitpid(child, 0)
    assert reader.read() == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/net/tcp"), reason="needs Linux")
def test_a_socket_that_was_closed_with_bytes_unsent_counts_for_a_reader_that_never_saw_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
    sender.setblocking(False)
    try:
        while True:
            sender.send(b"x" * 65536)
    except BlockingIOError:
        pass
    sender.close()
    reader = UnsentBytesReader()
    assert reader.read() > 0
    while accepted.recv(1 << 20):
        pass
    accepted.close()
    wait_until(lambda: reader.read() == 0, "the peer has read everything")
