"""Keeps a refused configuration at one line: what imports log meanwhile is held back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler

from sglang_worker.errors import ConfigError

NEVER_FLUSH = logging.CRITICAL + 1
CAPACITY = 10_000


@contextmanager
def held_logs() -> Iterator[None]:
    """Hold log records of the block; show them at its end, unless it ends in a ConfigError.

    Other errors show them, because there the imports' messages may be the explanation.
    """
    root = logging.getLogger()
    before = list(root.handlers)
    held = MemoryHandler(CAPACITY, flushLevel=NEVER_FLUSH, flushOnClose=False)
    root.handlers[:] = [held]
    refused = False
    try:
        yield
    except ConfigError:
        refused = True
        raise
    finally:
        added = [handler for handler in root.handlers if handler is not held]
        root.handlers[:] = [*before, *added]
        if not refused:
            for record in held.buffer:
                root.callHandlers(record)
        held.close()
