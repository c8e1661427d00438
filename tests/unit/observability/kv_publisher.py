"""A publisher of KV events of our own in the place of SGLang's, for one rank."""

from __future__ import annotations

import importlib
import time
from typing import Any

import msgspec

from tests.support.ports import free_port
from tests.support.wait import wait_until


class Publisher:
    """Drops nothing by itself: its queues have no bound."""

    def __init__(self) -> None:
        self._zmq: Any = importlib.import_module("zmq")
        self.endpoint = f"tcp://127.0.0.1:{free_port()}"
        self._socket: Any = None
        self.bind()

    def bind(self) -> None:
        """A fresh publisher on the same port, as after a restart."""
        self.close()
        self._socket = self._zmq.Context.instance().socket(self._zmq.XPUB)
        self._socket.setsockopt(self._zmq.XPUB_VERBOSE, 1)
        self._socket.setsockopt(self._zmq.SNDHWM, 0)
        wait_until(
            lambda: self._socket.bind(self.endpoint) or True,
            "the port is free",
            ignore=(self._zmq.ZMQError,),
        )

    def wait_for_subscribers(self) -> None:
        """Both the runtime's relay and the watcher."""
        for name in ("first", "second"):
            wait_until(lambda: self._socket.poll(0), f"the {name} subscriber has come")
            self._socket.recv()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close(linger=0)

    def store(self, block: int, token_ids: list[int]) -> None:
        """Block ``block`` as batch number ``block``."""
        self.send(block, stored(block, token_ids=token_ids))

    def send(self, number: int, *events: Any, raw: bytes | None = None) -> None:
        payload = msgspec.msgpack.encode([time.time(), list(events), 0]) if raw is None else raw
        self._socket.send_multipart([b"", number.to_bytes(8, "big"), payload])


def stored(
    block: int, parent: int | None = None, token_ids: list[int] | None = None
) -> dict[str, Any]:
    """One block of four tokens."""
    return {
        "type": "BlockStored",
        "block_hashes": [block],
        "parent_block_hash": parent,
        "token_ids": [block] * 4 if token_ids is None else token_ids,
        "block_size": 4,
        "medium": "GPU",
    }
