"""The port where an engine's ranks meet: told free before the start, and kept free until they did.

SGLang chooses or is told the port long before a scheduler opens it (seconds on a CPU, minutes with
a large model). Whatever takes it in between ends the start with a traceback of torch's store.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import msgspec

from sglang_worker.errors import ConfigError

FLAGS = {"dist_init_addr": "--dist-init-addr", "nccl_port": "--nccl-port"}


class Meeting(msgspec.Struct, frozen=True):
    """``given``: what its flag says; ``field``: the field of SGLang's ServerArgs it came from."""

    field: str
    given: str
    port: int


def meeting_of(server_args: Any) -> Meeting | None:
    """Where this process's ranks will listen; None where they do not, or SGLang chooses itself
    (data-parallel ranks meet group by group, on ports that SGLang's controller holds)."""
    if int(server_args.node_rank or 0):
        return None
    if address := server_args.dist_init_addr:
        port = int(str(address).rpartition(":")[2])
        return Meeting("dist_init_addr", str(address), port)
    if server_args.nccl_port:
        return Meeting("nccl_port", str(server_args.nccl_port), int(server_args.nccl_port))
    return None


@contextlib.contextmanager
def held(server_args: Any) -> Iterator[None]:
    """Keep others off the port while the engine starts. Raises ConfigError when it is taken.

    Bound with SO_REUSEADDR and not listening: Linux lets torch's store, which sets the option too,
    open the port all the same, and refuses it to whoever looks for a port that is free. Two workers
    that start with one port would both get that far; a name that only one can have stops the other.
    """
    meeting = meeting_of(server_args)
    if meeting is None:
        yield
        return
    with socket.socket() as keeper, socket.socket(socket.AF_UNIX) as name:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Abstract names belong to the network namespace, as ports do, and end with the process.
            name.bind(f"\0sglang-worker-meeting-{meeting.port}")
            keeper.bind(("0.0.0.0", meeting.port))
        except OSError as failure:
            raise ConfigError(
                f"{FLAGS[meeting.field]}={meeting.given}: port {meeting.port}, where the engine's "
                f"ranks are to meet, cannot be opened: {failure.strerror or failure}; choose a "
                "free port, or on one node leave the flag out and a free one is taken"
            ) from None
        yield
