"""SGLang's tokenizer workers: further processes that send requests to a running engine.

Read in SGLang 0.5.23: ``entrypoints/engine.py`` (``attach_tokenizer_worker``, the launch data in
shared memory), ``managers/multi_tokenizer_mixin.py`` (``TokenizerWorker``: sends through the main
process's router, receives from the detokenizer directly), ``managers/tokenizer_manager.py``
(``abort_request`` passes an unknown id on when there are several tokenizers), ``managers/
scheduler.py`` (aborts by prefix).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any

from sglang_worker.errors import ConfigError

ATTACH = "attach_tokenizer_worker"


def require_attach() -> None:
    """Raises ConfigError when the installed SGLang cannot share one engine between processes."""
    from sglang.srt.entrypoints.engine import Engine

    if not hasattr(Engine, ATTACH):
        raise ConfigError(
            f"--gateway-workers above 1 needs an SGLang whose Engine has {ATTACH} (0.5.23); "
            "accepted with this release: 1"
        )


def attach(owner_pid: int) -> Any:
    """An `sgl.Engine` without processes: a tokenizer worker of the engine of ``owner_pid``."""
    from sglang.srt.entrypoints.engine import Engine

    engine = Engine.attach_tokenizer_worker(owner_pid)
    # Reading shared memory makes Python believe that it is ours to remove when we end.
    with contextlib.suppress(Exception):
        resource_tracker.unregister(f"/multi_tokenizer_args_{owner_pid}", "shared_memory")
    return engine


def remove_shared_data(engine: Any) -> None:
    """The launch data that gateways read; no-op for an engine that no other process may join."""
    memory = getattr(engine, "_multi_tokenizer_shm", None)
    if memory is not None:
        engine._multi_tokenizer_shm = None
        with contextlib.suppress(FileNotFoundError):
            memory.unlink()


def abort_by_prefix(tokenizer_manager: Any, prefix: str) -> None:
    """End every request of the engine whose id begins with ``prefix``, whoever sent it.

    Only for engines with several tokenizers: a single one drops aborts of ids it does not know.
    """
    tokenizer_manager.abort_request(rid=prefix, abort_all=False)


@contextlib.contextmanager
def kept_title() -> Iterator[None]:
    """A tokenizer worker names its process after itself; the worker is more than that."""
    import setproctitle

    before = setproctitle.getproctitle()
    try:
        yield
    finally:
        if setproctitle.getproctitle() != before:
            setproctitle.setproctitle(before)
