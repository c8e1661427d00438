"""The decode worker of a disaggregated deployment: the prompt's KV cache comes from a prefill
worker, which the frontend's prefill router chose and told us about."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sglang_worker.engine import compat_disagg
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.decode import Variant, token_worker
from sglang_worker.workers.generate_handler import GenerateHandler
from sglang_worker.workers.service import WorkerService


def build(context: WorkerContext) -> WorkerService:
    return token_worker(context, variant(context))


def variant(context: WorkerContext) -> Variant:
    port = int(context.engine.server_args.disaggregation_bootstrap_port)
    return Variant(
        handler=partial(GenerateHandler, remote_prefill=True),
        payload=partial(with_pretended_transfer, port=port),
    )


def with_pretended_transfer(payload: Mapping[str, Any], *, port: int) -> Mapping[str, Any]:
    """A health payload whose KV cache need not come from anywhere; SGLang decodes all the same.

    An operator's own payload keeps the transfer that it names.
    """
    pretended = {
        "bootstrap_host": compat_disagg.fake_bootstrap_host(),
        "bootstrap_port": port,
        "bootstrap_room": 0,
    }
    return {"bootstrap_info": pretended, **payload}
