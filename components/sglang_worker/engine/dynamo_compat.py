"""The one place that touches Dynamo's runtime and its Python bindings (ai-dynamo 1.6.1).

Facts that shape it (FACTS section 2 and notes of this project):

- ``serve_endpoint`` registers the instance by itself about 3 ms after it starts, once, and never
  again; an unregister before that fails without effect. So serving starts with no model card
  published (nobody routes to the endpoint yet), waits until the implicit registration shows in
  discovery, and only then hands registration to its one owner.
- Every ``__anext__`` of a handler's generator runs in a task of its own. A handler with a parameter
  ``response_sender`` gets a sink to push into instead, and its generator is advanced once; calls
  inside the process, the canary's too, still pull.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from sglang_worker.config.worker_config import EndpointAddress, RuntimeSettings
from sglang_worker.engine.dynamo_compat_media import frontend_decoding_options
from sglang_worker.engine.egress import Egress, Sink

logger = logging.getLogger(__name__)

Handler = Callable[[Any, Any], AsyncIterator[Any]]

PREFILL_SURFACE = ("prefill",)
EMBEDDING_SURFACE = ("embedding",)
# Surfaces of Dynamo's ModelType that no operator chooses: they come with the worker type.
_OWN_SURFACES: dict[tuple[str, ...], str] = {
    PREFILL_SURFACE: "Prefill",
    EMBEDDING_SURFACE: "Embedding",
}
REGISTRATION_POLL_S = 0.002
REGISTRATION_TIMEOUT_S = 30.0


def create_runtime(settings: RuntimeSettings, loop: asyncio.AbstractEventLoop) -> Any:
    """A DistributedRuntime on the running loop."""
    from dynamo.runtime import DistributedRuntime

    return DistributedRuntime(
        loop,
        settings.discovery_backend,
        settings.request_plane,
        event_plane=settings.event_plane,
        response_plane=settings.response_plane,
    )


def system_server_url(runtime: Any) -> str | None:
    """URL of the runtime's own server; None when it has none."""
    url: str | None = runtime.system_status_server_url()
    return url or None


def set_health(runtime: Any, healthy: bool) -> None:
    """What the runtime's ``/health`` and ``/live`` answer besides its canary."""
    runtime.set_health_status(healthy)


def shutdown(runtime: Any) -> None:
    runtime.shutdown()


def pushing(handler: Handler, egress: Egress) -> Callable[..., AsyncIterator[Any]]:
    """``handler`` as the runtime can push with it; see `engine.egress` for why."""

    def serve(
        request: Any, context: Any = None, response_sender: Sink | None = None
    ) -> AsyncIterator[Any]:
        chunks = handler(request, context)
        return chunks if response_sender is None else egress.push(chunks, response_sender)

    return serve


class ServedEndpoint:
    """One endpoint of the runtime and the task that serves it."""

    def __init__(self, runtime: Any, address: EndpointAddress) -> None:
        self.address = address
        self.endpoint = runtime.endpoint(address.path)
        self.task: asyncio.Task[None] | None = None
        # Dynamo's Client of this very endpoint, once `implicit_registration` has made it.
        self.client: Any = None

    @property
    def listed(self) -> bool:
        """Whether discovery, as a client of this endpoint sees it, has this instance."""
        return self.client is not None and self.worker_id in self.client.instance_ids()

    @property
    def worker_id(self) -> int:
        """The instance id; reading it is also the cheap binding call that lets dropped
        generators finish (FACTS section 3)."""
        return int(self.endpoint.connection_id())

    def serve(
        self,
        handler: Handler,
        *,
        labels: list[tuple[str, str]] | None = None,
        health_payload: Mapping[str, Any] | None = None,
    ) -> asyncio.Task[None]:
        async def run() -> None:
            await self.endpoint.serve_endpoint(
                pushing(handler, Egress()),
                graceful_shutdown=True,
                metrics_labels=labels,
                health_check_payload=None if health_payload is None else dict(health_payload),
            )

        self.task = asyncio.create_task(run(), name=f"serve {self.address.path}")
        return self.task

    async def implicit_registration(self) -> None:
        """Wait until the registration that serving made by itself shows in discovery.

        Raises what serving raised, or asyncio.TimeoutError.
        """
        self.client = await self.endpoint.client()
        async with asyncio.timeout(REGISTRATION_TIMEOUT_S):
            await self._until_listed()

    async def _until_listed(self) -> None:
        while not self.listed:
            if self.task is not None and self.task.done():
                self.task.result()
                raise ConnectionError(f"serving {self.address.path} ended at once")
            await asyncio.sleep(REGISTRATION_POLL_S)

    async def register(self) -> None:
        """Returns once discovery has confirmed; raises when the outcome is not known."""
        await self.endpoint.register_endpoint_instance()

    async def withdraw(self) -> None:
        await self.endpoint.unregister_endpoint_instance()


def new_context() -> Any:
    """A request context as handlers get it, for requests that the worker sends itself."""
    from dynamo._core import Context

    return Context()


def health_check_key() -> str:
    """The field that marks a payload of the runtime's own health probe."""
    from dynamo.health_check import HEALTH_CHECK_KEY

    return str(HEALTH_CHECK_KEY)


def health_payload_override() -> Mapping[str, Any] | None:
    """The operator's own probe payload (``DYN_HEALTH_CHECK_PAYLOAD``)."""
    from dynamo.health_check import load_health_check_from_env

    return load_health_check_from_env()


def invalid_argument(message: str) -> Exception:
    from dynamo.llm.exceptions import InvalidArgument

    return InvalidArgument(message)


def http_error(status: int, message: str) -> Exception:
    from dynamo.llm.exceptions import HttpError

    return HttpError(status, message)


def engine_shutdown(message: str) -> Exception:
    from dynamo.llm.exceptions import EngineShutdown

    return EngineShutdown(message)


def worker_unavailable(message: str) -> Exception:
    from dynamo.llm.exceptions import WorkerUnavailable

    return WorkerUnavailable(message)


async def publish_card(endpoint: Any, card: Any) -> None:
    """Attach a `workers.registration.ModelCard` to a served endpoint; raises on failure."""
    from dynamo import llm
    from dynamo.common.configuration.groups.router_args import build_router_config

    worker_type = getattr(llm.WorkerType, card.role.worker_type)
    needs = [[getattr(llm.WorkerType, peer) for peer in group] for group in card.role.needs]
    await llm.register_model(
        llm.ModelInput.Text if card.text_input else llm.ModelInput.Tokens,
        model_type(_surface(card)),
        endpoint,
        card.source,
        card.name,
        worker_type=worker_type,
        needs=needs,
        kv_cache_block_size=card.capacity.kv_block_tokens,
        runtime_config=_runtime_config(card),
        custom_template_path=card.custom_template_path,
        router_config=build_router_config(router_flags(card.router)),
        max_gpu_lora_count=card.max_loras,
        model_aliases=list(card.aliases) or None,
        **(frontend_decoding_options(os.environ) if card.frontend_decoding else {}),
    )


def _surface(card: Any) -> tuple[str, ...]:
    """Text that arrives as the client wrote it is chat, unless the worker type serves another."""
    types: tuple[str, ...] = card.endpoint_types
    return ("chat",) if card.text_input and types not in _OWN_SURFACES else types


def router_flags(router: Mapping[str, Any]) -> Any:
    """The object of Dynamo's router flags that `build_router_config` takes, or None."""
    if not router:
        return None
    from dynamo.common.configuration.groups.router_args import WorkerRouterConfig

    flags = WorkerRouterConfig()
    for name, value in router.items():
        setattr(flags, name, value)
    return flags


def model_type(endpoint_types: tuple[str, ...]) -> Any:
    """``("chat", "completions")`` -> Dynamo's ModelType flags; ``("none",)`` -> no surface;
    ``("prefill",)`` -> the mark of prefill workers, by which older frontends know them;
    ``("embedding",)`` -> embeddings."""
    if (own := _OWN_SURFACES.get(endpoint_types)) is not None:
        from dynamo.llm import ModelType

        return getattr(ModelType, own)
    from dynamo.common.utils.endpoint_types import parse_endpoint_types

    return parse_endpoint_types(",".join(endpoint_types))


def _runtime_config(card: Any) -> Any:
    from dynamo.llm import ModelRuntimeConfig

    capacity = card.capacity
    config = ModelRuntimeConfig()
    config.context_length = card.context_length
    config.tool_call_parser = card.tool_call_parser
    config.reasoning_parser = card.reasoning_parser
    config.exclude_tools_when_tool_choice_none = card.exclude_tools_when_tool_choice_none
    config.data_parallel_start_rank = 0
    config.data_parallel_size = capacity.dp_ranks
    config.kv_event_publishing_enabled = card.publishes_kv_events
    config.enable_local_indexer = card.publishes_kv_events and card.role.worker_type != "Decode"
    config.enable_eagle = capacity.bigram_keys
    if card.bootstrap is not None:
        config.set_disaggregated_endpoint(card.bootstrap.host, card.bootstrap.port)
    for name, value in (
        ("total_kv_blocks", capacity.total_kv_blocks),
        ("max_num_seqs", capacity.max_running_requests),
        ("max_num_batched_tokens", capacity.max_batched_tokens),
        *card.attributes.items(),
    ):
        if value is not None:
            setattr(config, name, value)
    for key, text in card.runtime_data.items():
        config.set_engine_specific(key, text)
    return config


async def publish_lora(endpoint: Any, card: Any, name: str) -> None:
    """Advertise an adapter of the card's model as a model of its own, on the same instance."""
    from dynamo import llm

    await llm.register_model(
        llm.ModelInput.Tokens,
        model_type(card.endpoint_types),
        endpoint,
        card.source,
        worker_type=getattr(llm.WorkerType, card.role.worker_type),
        needs=[[getattr(llm.WorkerType, peer) for peer in group] for group in card.role.needs],
        kv_cache_block_size=card.capacity.kv_block_tokens,
        runtime_config=_runtime_config(card),
        custom_template_path=card.custom_template_path,
        user_data={"lora_adapter": True, "lora_id": lora_id(name)},
        lora_name=name,
        base_model_path=card.source,
        # The card needs the base model's metadata only.
        ignore_weights=True,
        max_gpu_lora_count=card.max_loras,
    )


async def withdraw_lora(endpoint: Any, name: str) -> None:
    from dynamo.llm import unregister_model

    await unregister_model(endpoint, name)


def lora_id(name: str) -> int:
    """Dynamo's id of an adapter, the same on every worker."""
    from dynamo.llm import lora_name_to_id

    return int(lora_name_to_id(name))


async def download_lora(uri: str) -> tuple[str | None, str]:
    """Local folder of an adapter that Dynamo's manager fetched, or None and the reason."""
    from dynamo.common.lora.manager import get_lora_manager

    manager = get_lora_manager()
    if manager is None:
        return None, "loading from a URI needs DYN_LORA_ENABLED=true"
    result = await manager.download_lora(uri)
    if result["status"] != "success":
        return None, str(result.get("message", "the download failed"))
    return str(result["local_path"]), ""
