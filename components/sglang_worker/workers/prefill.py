"""The prefill worker: computes prompts and keeps their KV caches until decode has fetched them.

Its warm-up is that of every token worker (`workers.warm_up`): requests in the form that routers
send, the transfer pretended, before the model card is published. In addition the bootstrap server
must know every rank, because a prefill worker that decode cannot find would hold every request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from sglang_worker.engine import bootstrap, compat_disagg, dynamo_compat
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.decode import Variant, token_worker
from sglang_worker.workers.disaggregated_decode import with_pretended_transfer
from sglang_worker.workers.prefill_handler import PrefillHandler
from sglang_worker.workers.service import WorkerService

logger = logging.getLogger(__name__)


def build(context: WorkerContext) -> WorkerService:
    return token_worker(context, variant(context))


def variant(context: WorkerContext) -> Variant:
    engine = context.engine
    address = bootstrap.advertised(engine.server_args)
    logger.info("decode workers reach this prefill worker at %s:%d", address.host, address.port)
    return Variant(
        handler=partial(PrefillHandler, address, compat_disagg.follows_room(engine.server_args)),
        fields={"bootstrap": address, "endpoint_types": dynamo_compat.PREFILL_SURFACE},
        payload=partial(wrapped_payload, port=address.port),
        warm_up=partial(bootstrap.until_ready, engine.tokenizer_manager, engine.server_args),
    )


def wrapped_payload(payload: Mapping[str, Any], *, port: int) -> Mapping[str, Any]:
    """A health payload in the form of a prefill request, with a pretended transfer."""
    key = dynamo_compat.health_check_key()
    if "request" in payload:
        return payload
    inner = {name: value for name, value in payload.items() if name != key}
    return {
        "request": with_pretended_transfer(inner, port=port),
        "sampling_params": {"max_new_tokens": 1},
        key: payload[key],
    }
