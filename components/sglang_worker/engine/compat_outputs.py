"""Schedulers that send their outputs straight to this process when nobody reads SGLang's text.

Dynamo's frontend turns token ids into text, and so this worker hands out token ids. SGLang's
schedulers still send every output through a detokenizer process, whose text is then thrown away:
a process more to keep up with the engine, and a hop more for every token. SGLang has the shorter
way itself, for an engine without a tokenizer; here the schedulers keep theirs, which finds stop
strings and compiles grammars, and only their outputs take it.

Read in SGLang 0.5.22 and 0.5.23: ``managers/scheduler_components/ipc_channels.py``
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
# Methods of the engine and of its tokenizer manager that answer with text have this in their name.
ANSWERS_WITH_TEXT = "generate"


def reader_of_text(config: WorkerConfig, server_args: Any) -> str | None:
    """Who needs the text that SGLang makes; None when it would be thrown away."""
    if config.model.use_sglang_tokenizer:
        return "--use-sglang-tokenizer"
    if config.gateway_workers > 1:
        # One detokenizer also divides each output among the gateways.
        return "--gateway-workers"
    for route in config.system.routes:
        if ANSWERS_WITH_TEXT in route.method:
            return f"--engine-route {route.text}"
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
