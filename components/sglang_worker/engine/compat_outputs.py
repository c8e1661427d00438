"""Schedulers that send their outputs straight to this process when nobody reads SGLang's text.

Dynamo's frontend turns token ids into text, and so this worker hands out token ids. SGLang's
schedulers still send every output through a detokenizer process, whose text is then thrown away:
a process more to keep up with the engine, and a hop more for every token. SGLang has the shorter
way itself, for an engine without a tokenizer; here the schedulers keep theirs, which finds stop
strings and compiles grammars, and only their outputs take it.

Read in SGLang 0.5.20 to 0.5.23: ``managers/scheduler_components/ipc_channels.py``
(``SchedulerIpcChannels.create`` chooses the socket by ``skip_tokenizer_init``),
``managers/tokenizer_manager.py`` (``_handle_batch_output`` takes ``BatchTokenIDOutput``, and its
dispatcher ignores what schedulers otherwise tell the detokenizer). Where these are missing, outputs
go on passing the detokenizer.
"""

from __future__ import annotations

import functools
import inspect
import os
from contextlib import AbstractContextManager
from typing import Any

from sglang_worker.config import environment
from sglang_worker.config.worker_config import WorkerConfig

VARIABLE = "SGLANG_WORKER_DIRECT_OUTPUTS"
# In the names of all methods of the engine and its tokenizer manager that answer with text, and of
# the one that has requests logged or dumped while they are served.
READS_TEXT = ("generate", "configure_logging")
# So many outputs of one request SGLang joins without a word in the log.
JOINED_QUIETLY = 19


def reader_of_text(config: WorkerConfig, server_args: Any) -> str | None:
    """Who needs the text that SGLang makes; None when it would be thrown away."""
    if config.model.use_sglang_tokenizer:
        return "--use-sglang-tokenizer"
    if config.gateway_workers > 1:
        # One detokenizer also divides each output among the gateways.
        return "--gateway-workers"
    for route in config.system.routes:
        if any(name in route.method for name in READS_TEXT):
            return f"--engine-route {route.text}"
    if getattr(server_args, "node_rank", 0):
        # Outputs go to the first node, and its flags decide who reads them there.
        return "--node-rank"
    if getattr(server_args, "crash_dump_folder", None):
        return "--crash-dump-folder"
    if getattr(server_args, "log_requests", False):
        return "--log-requests"
    return None


def sent_directly(wanted: bool) -> AbstractContextManager[None]:
    """Schedulers that start inside send directly, if ``wanted``."""
    return environment.shown_to_children(VARIABLE, "1" if wanted else None)


def install() -> bool:
    """In a scheduler process, before SGLang makes its sockets; whether outputs go directly."""
    if not os.environ.get(VARIABLE):
        return False
    channels = _channels()
    if channels is None:
        return False
    create = channels.create

    @functools.wraps(create)
    def create_direct(**options: Any) -> Any:
        return create(**{**options, "skip_tokenizer_init": True})

    channels.create = staticmethod(create_direct)
    return True


def join_alike(tokenizer_manager: Any) -> None:
    """Have SGLang join outputs of one request of which only some carry text, and many of them.

    ``_coalesce_streaming_chunks`` joins what a stream has not asked for yet. It looks for text in
    the last one, and raises KeyError for the rest: outputs of a scheduler that sends directly carry
    none, while the one with which the tokenizer manager itself ends an aborted request always does.
    For many at once it logs a line, and so would every stream of a process that falls behind, which
    `engine.pace` tells already.
    """
    join = getattr(tokenizer_manager, "_coalesce_streaming_chunks", None)
    if join is None:
        return

    @functools.wraps(join)
    def join_in_parts(outputs: list[dict[str, Any]], *rest: Any, **options: Any) -> Any:
        if any("text" not in output for output in outputs):
            outputs = [
                {name: value for name, value in output.items() if name != "text"}
                for output in outputs
            ]
        while len(outputs) > JOINED_QUIETLY:
            first = join(outputs[:JOINED_QUIETLY], *rest, **options)
            outputs = [first, *outputs[JOINED_QUIETLY:]]
        return join(outputs, *rest, **options)

    tokenizer_manager._coalesce_streaming_chunks = join_in_parts


def _channels() -> Any:
    """The class that makes a scheduler's sockets; None where this SGLang has none such."""
    try:
        from sglang.srt.managers.scheduler_components.ipc_channels import SchedulerIpcChannels
    except ImportError:
        return None
    create = getattr(SchedulerIpcChannels, "create", None)
    if create is None or "skip_tokenizer_init" not in inspect.signature(create).parameters:
        return None
    return SchedulerIpcChannels
