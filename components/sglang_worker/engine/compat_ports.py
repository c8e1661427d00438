"""Ports that SGLang checks before a launch (read in 0.5.23 ``PortArgs.init_new``).

With attention data parallelism the nodes talk on fixed ports counted from ``--dist-init-addr``. All
of them are opened by the first node, yet every node waits until they are free on its own machine. A
later node on the first one's machine therefore gave up whenever the first had been quicker, and the
first then waited for it without end.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

logger = logging.getLogger(__name__)

CHECK = "wait_port_available"


@contextlib.contextmanager
def only_own_checked(server_args: Any) -> Iterator[None]:
    """Nodes after the first skip the check while they launch: they open none of these ports.

    Only in the main thread, before others exist: the check is replaced in SGLang's module.
    """
    from sglang.srt import server_args as module

    check = getattr(module, CHECK, None)
    if check is None or not int(server_args.node_rank or 0):
        yield
        return
    setattr(module, CHECK, _skipped)
    try:
        yield
    finally:
        setattr(module, CHECK, check)


def _skipped(port: int, port_name: str, *_: Any, **__: Any) -> bool:
    logger.debug("%s %d is the first node's: not checked here", port_name, port)
    return True
