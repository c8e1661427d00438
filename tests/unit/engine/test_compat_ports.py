"""A later node on the first one's machine does not wait for ports that the first has opened."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from sglang_worker.engine import compat_ports


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setenv("SGLANG_WAIT_PORT_TIMEOUT", "1")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def check(port: int) -> None:
    """As SGLang's launch does."""
    from sglang.srt import server_args

    server_args.wait_port_available(port, "detokenizer_port")


def test_a_later_node_ignores_the_first_nodes_ports_while_it_launches(taken: int) -> None:
    with compat_ports.only_own_checked(SimpleNamespace(node_rank=1)):
        check(taken)
    with pytest.raises(ValueError, match=f"detokenizer_port at {taken} is not available"):
        check(taken)


def test_the_first_node_is_told_of_a_taken_port(taken: int) -> None:
    with (
        compat_ports.only_own_checked(SimpleNamespace(node_rank=0)),
        pytest.raises(ValueError, match=f"detokenizer_port at {taken} is not available"),
    ):
        check(taken)
