"""The encode worker: faces the frontend, encodes media, and has internal workers generate.

It carries the model's OpenAI surface. A request goes on to an internal worker with its media
replaced by embeddings, and the internal worker's chunks come back through here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from sglang_worker.config.worker_config import EndpointAddress, WorkerConfig
from sglang_worker.engine import dynamo_compat
from sglang_worker.engine.capacity import Capacity, kv_block_tokens
from sglang_worker.engine.compat_encoder import EncodeFailed
from sglang_worker.engine.dynamo_compat import ServedEndpoint
from sglang_worker.engine.dynamo_compat_embeddings import EmbeddingSender, SentEmbeddings
from sglang_worker.engine.dynamo_compat_forward import Peers
from sglang_worker.engine.encoder import EncoderEngine
from sglang_worker.lifecycle.gate import LateRequest
from sglang_worker.workers.admission import Admission
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.failures import EXPECTED, to_dynamo
from sglang_worker.workers.health import marked
from sglang_worker.workers.media_stage import ClientGone
from sglang_worker.workers.multimodal_encoding import Encoding
from sglang_worker.workers.multimodal_forward import Forwarded, InternalWorkers
from sglang_worker.workers.multimodal_media import raw_media
from sglang_worker.workers.probes import IsProbe, probe_test
from sglang_worker.workers.registration import ROLES, ModelCard
from sglang_worker.workers.service import RequestsInFlight, WorkerService

SERVER_ERROR = 500
# Where internal workers are: pd or decode; and prefill, if it runs on its own.
GENERATING_COMPONENT, PREFILL_COMPONENT = "backend", "prefill"


class EncodeHandler(RequestsInFlight):
    """Serves ``generate``. The internal worker checks the request itself; here only its media."""

    def __init__(
        self,
        encoding: Encoding,
        workers: InternalWorkers,
        admission: Admission,
        is_probe: IsProbe,
    ) -> None:
        self._encoding = encoding
        self._workers = workers
        self._admission = admission
        self._is_probe = is_probe
        self._live: set[Forwarded] = set()

    async def generate(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        probe = self._is_probe(request)
        try:
            ticket = self._admission.admit(probe=probe)
        except LateRequest as late:
            raise dynamo_compat.worker_unavailable(str(late)) from None
        sent: SentEmbeddings | None = None
        onward: Forwarded | None = None
        try:
            if probe:
                await self._encoding.probe()
                yield {"token_ids": [], "finish_reason": "stop"}
                return
            prepared, sent = await self._encoding.prepare(request, context)
            onward = Forwarded(self._workers, prepared, context)
            self._live.add(onward)
            async with aclosing(onward.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except ClientGone:
            return
        except EXPECTED as error:
            raise to_dynamo(error) from None
        except EncodeFailed as error:
            raise dynamo_compat.http_error(SERVER_ERROR, f"encoding failed: {error}") from None
        finally:
            if onward is not None:
                self.cancelled += onward.stopped
                self._live.discard(onward)
            self._encoding.settle(sent, ticket)

    @property
    def live_generations(self) -> int:
        return len(self._live)

    def fail_all(self) -> None:
        self._encoding.fail_all()
        for onward in tuple(self._live):
            onward.fail()

    def fail_all_without_engine(self) -> None:
        self.fail_all()


def build(context: WorkerContext) -> WorkerService:
    engine: EncoderEngine = context.engine
    config = context.config
    key = dynamo_compat.health_check_key()
    media = raw_media(config, engine.refusals, {})
    workers = InternalWorkers(
        *(
            Peers(context.runtime, EndpointAddress(config.endpoint.namespace, name, "generate"))
            for name in (GENERATING_COMPONENT, PREFILL_COMPONENT)
        )
    )
    handler = EncodeHandler(
        Encoding(engine, media, lambda: EmbeddingSender(config.embedding_transfer_mode)),
        workers,
        context.admission,
        probe_test(key),
    )
    payload = marked(config.health_check_payload or {"token_ids": []}, key)
    return WorkerService(
        ServedEndpoint(context.runtime, config.endpoint),
        handler.generate,
        handler,
        encode_card(config, engine),
        health_payload=payload,
        first_requests=() if engine.server_args.skip_server_warmup else (payload,),
        warm_up=workers.watch,
    )


def encode_card(config: WorkerConfig, engine: EncoderEngine) -> ModelCard:
    """The model as its clients see it; what it can hold is the internal workers' to say."""
    name, *aliases = config.model.served_model_names
    args: Any = engine.server_args
    data: Mapping[str, str] = {}
    if config.model.default_thinking_mode is not None:
        data = {"default_thinking_mode": f'"{config.model.default_thinking_mode}"'}
    return ModelCard(
        source=engine.model_source,
        name=name,
        aliases=tuple(aliases),
        role=ROLES[config.worker_type],
        endpoint_types=config.model.endpoint_types,
        text_input=False,
        capacity=Capacity(kv_block_tokens=kv_block_tokens(args)),
        context_length=args.context_length or engine.context_length,
        tool_call_parser=config.model.tool_call_parser,
        reasoning_parser=config.model.reasoning_parser,
        exclude_tools_when_tool_choice_none=config.model.exclude_tools_when_tool_choice_none,
        custom_template_path=config.model.custom_jinja_template,
        max_loras=None,
        publishes_kv_events=False,
        runtime_data=data,
        attributes={},
        router=config.router,
        frontend_decoding=config.model.frontend_decoding,
    )
