"""The prefill worker: computes prompts and keeps their KV caches until decode has fetched them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from sglang_worker.engine import bootstrap, compat_disagg, dynamo_compat
from sglang_worker.engine.generation import Generation
from sglang_worker.errors import EngineStartError
from sglang_worker.requests.chunks import finish_fields
from sglang_worker.requests.errors import EndedByEngine, RefusedByEngine
from sglang_worker.requests.ids import new_probe_id
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.decode import Variant, token_worker
from sglang_worker.workers.disaggregated_decode import with_pretended_transfer
from sglang_worker.workers.prefill_handler import PrefillHandler
from sglang_worker.workers.service import WorkerService

logger = logging.getLogger(__name__)

# The slowest cold start compiles kernels for every shape of a large model.
WARM_UP_TIMEOUT_S = 1800.0
WARM_UP_TOKENS = 4


def build(context: WorkerContext) -> WorkerService:
    address = bootstrap.advertised(context.engine.server_args)
    logger.info("decode workers reach this prefill worker at %s:%d", address.host, address.port)
    return token_worker(
        context,
        Variant(
            handler=partial(PrefillHandler, address),
            fields={"bootstrap": address, "endpoint_types": dynamo_compat.PREFILL_SURFACE},
            payload=partial(wrapped_payload, port=address.port),
            warm_up=partial(warm_up, context.engine),
        ),
    )


def wrapped_payload(payload: Mapping[str, Any], *, port: int) -> Mapping[str, Any]:
    """The health payload in the form of a prefill request, with a pretended transfer."""
    key = dynamo_compat.health_check_key()
    if "request" in payload:
        return payload
    inner = {name: value for name, value in payload.items() if name != key}
    return {
        "request": with_pretended_transfer(inner, port=port),
        "sampling_params": {"max_new_tokens": 1},
        key: True,
    }


async def warm_up(engine: Any) -> None:
    """One prompt per data-parallel rank through the whole prefill path, the transfer pretended.

    A prefill worker that cannot do this would drop requests without a word, so it must not
    register. Raises EngineStartError.
    """
    manager, args = engine.tokenizer_manager, engine.server_args
    await bootstrap.until_ready(manager, args)
    try:
        async with asyncio.timeout(WARM_UP_TIMEOUT_S):
            ranks = range(engine.limits.dp_ranks)
            await asyncio.gather(*(_warm_rank(engine, rank) for rank in ranks))
    except TimeoutError:
        raise EngineStartError(
            f"the prefill warm-up did not end within {WARM_UP_TIMEOUT_S:g} s"
        ) from None
    except (EndedByEngine, RefusedByEngine, ValueError) as failure:
        raise EngineStartError(f"the prefill warm-up failed: {failure}") from None
    logger.info("prefill warm-up done on %d rank(s)", engine.limits.dp_ranks)


async def _warm_rank(engine: Any, rank: int) -> None:
    fields = {
        "input_ids": [token % engine.limits.vocab_size for token in range(1, 1 + WARM_UP_TOKENS)],
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True},
        "bootstrap_host": compat_disagg.fake_bootstrap_host(),
        "bootstrap_port": int(engine.server_args.disaggregation_bootstrap_port),
        "bootstrap_room": rank,
        "routed_dp_rank": rank,
    }
    generation = Generation(engine.tokenizer_manager, fields, new_probe_id())
    last = await generation.first()
    async for output in generation.rest():
        last = output
    finish = None if last is None else last["meta_info"]["finish_reason"]
    if finish is None:
        raise EndedByEngine("the engine ended it without a finish reason")
    # Raises when the engine gave it up.
    finish_fields(finish, frozenset())
