"""The embedding worker: OpenAI's embeddings on an engine that only ever prefills."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import compat_embedding, dynamo_compat
from sglang_worker.engine.dynamo_compat import EMBEDDING_SURFACE, ServedEndpoint
from sglang_worker.errors import EngineStartError
from sglang_worker.requests.embedding import map_embedding
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.embedding_handler import EmbeddingHandler
from sglang_worker.workers.health import HealthRules, check_override, marked, probe_token
from sglang_worker.workers.probes import probe_test
from sglang_worker.workers.registration import ModelCard, build_card
from sglang_worker.workers.request_headers import wants_headers
from sglang_worker.workers.service import WorkerService
from sglang_worker.workers.warm_up import FIRST_TOKEN, LONG_PROMPT_TOKENS, SHORT_PROMPT_TOKENS

logger = logging.getLogger(__name__)


def build(context: WorkerContext) -> WorkerService:
    """Raises EngineStartError for a model that makes no embeddings, ConfigError for a health
    payload that would be refused."""
    engine, config = context.engine, context.config
    manager = engine.tokenizer_manager
    limits = compat_embedding.read_embedding_limits(manager, engine.limits)
    check_model(manager.model_config, engine.server_args)
    key = dynamo_compat.health_check_key()
    card = embedding_card(context)
    handler = EmbeddingHandler(
        manager,
        limits,
        context.admission,
        probe_test(key),
        name=card.name,
        traces=wants_headers(engine.server_args),
        answer_probe=context.probe_may_use_engine,
    )
    check_override(config.health_check_payload, lambda one: map_embedding(one, limits))
    payload = embedding_payload(key, card.name, manager.tokenizer, engine.limits, config)
    return WorkerService(
        ServedEndpoint(context.runtime, config.endpoint),
        handler.generate,
        handler,
        card,
        health_payload=payload,
        # SGLang spreads embedding requests over the ranks by itself and takes no word for one.
        health_rules=HealthRules(for_rank=lambda probe, rank: probe),
        first_requests=()
        if engine.server_args.skip_server_warmup
        else (payload, first_batch(key, card.name, engine.limits)),
        ranks=engine.limits.dp_ranks,
    )


def embedding_card(context: WorkerContext) -> ModelCard:
    """Requests arrive as the client wrote them: SGLang's tokenizer adds the special tokens that
    an embedding model needs, as SGLang's own server does."""
    return msgspec.structs.replace(
        build_card(context.config, context.engine, runners=context.runners),
        endpoint_types=EMBEDDING_SURFACE,
        text_input=True,
        tool_call_parser=None,
        reasoning_parser=None,
        custom_template_path=None,
        max_loras=None,
    )


def embedding_payload(
    key: str, name: str, tokenizer: Any, limits: EngineLimits, config: WorkerConfig
) -> dict[str, Any]:
    """The health payload: an ordinary embedding request for one token, or the operator's own."""
    override = config.health_check_payload
    if override is not None:
        return marked(override, key)
    return marked({"model": name, "input": [probe_token(tokenizer, limits.vocab_size)]}, key)


def first_batch(key: str, name: str, limits: EngineLimits) -> Mapping[str, Any]:
    """Two prompts of different lengths at once: what a batch compiles differs from one token."""
    low = min(FIRST_TOKEN, limits.vocab_size - 1)
    lengths = (SHORT_PROMPT_TOKENS, LONG_PROMPT_TOKENS)
    prompts = [[low] * max(1, min(length, limits.longest_prompt)) for length in lengths]
    return marked({"model": name, "input": prompts}, key)


def check_model(model_config: Any, server_args: Any) -> None:
    """Raises EngineStartError for a model whose output is no embedding; warns when the vectors
    are not those that the checkpoint's authors mean."""
    model = compat_embedding.model_of(model_config)
    if model.classifies:
        raise EngineStartError(
            f"--embedding-worker: {model.architecture} classifies; its scores are no embeddings"
        )
    declared = compat_embedding.declared_pooling(str(server_args.model_path))
    if declared and model.pooling and declared != model.pooling:
        logger.warning(
            "SGLang pools %s by %s, while the checkpoint's %s asks for %s: vectors differ from "
            "those of sentence-transformers",
            model.architecture,
            model.pooling,
            compat_embedding.POOLING_FILE,
            declared,
        )
