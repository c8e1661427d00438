"""The one place that reads SGLang's internals in the worker process, by probing for features.

SGLang is imported inside the functions: importing it costs seconds, and only the engine's owner
needs it. Read in SGLang 0.5.20 to 0.5.23: ``sglang/srt/managers/tokenizer_manager.py``
(``rid_to_state``, ``ReqState.dispatched``), ``io_struct.py`` (``GenerateReqInput``),
``arg_groups/model_override_base.py`` (``resolved_view``).
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from sglang_worker.engine import compat_disagg
from sglang_worker.errors import ConfigError
from sglang_worker.requests.ids import is_probe_id, new_request_id
from sglang_worker.requests.limits import EngineLimits

LOWEST = (0, 5, 20)
BELOW = (0, 5, 24)


def parse_version(text: str) -> tuple[int, ...]:
    """``0.5.23.post1`` -> ``(0, 5, 23)``; a part that is not a number ends the version."""
    numbers: list[int] = []
    for part in text.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def check_version(version: str | None = None) -> str:
    """The installed SGLang version; ConfigError when absent or outside the supported range."""
    if version is None:
        try:
            version = importlib.metadata.version("sglang")
        except importlib.metadata.PackageNotFoundError:
            raise ConfigError(
                "SGLang is not installed; this worker needs sglang>=0.5.20,<0.5.24"
            ) from None
    if not LOWEST <= parse_version(version) < BELOW:
        raise ConfigError(
            f"SGLang {version} is not supported; this worker needs sglang>=0.5.20,<0.5.24"
        )
    return version


def resolved(server_args: Any) -> Any:
    """SGLang keeps ServerArgs as the operator wrote it; this view has the effective values."""
    from sglang.srt.arg_groups.model_override_base import resolved_view

    return resolved_view(server_args)


def request_states(tokenizer_manager: Any) -> Mapping[str, Any]:
    """SGLang's live requests by id. An entry leaves when the scheduler has let go of it."""
    states: Mapping[str, Any] = tokenizer_manager.rid_to_state
    return states


def is_health_request(request_id: str) -> bool:
    """SGLang's own health probes carry a reserved prefix."""
    from sglang.srt.constants import HEALTH_CHECK_RID_PREFIX

    return request_id.startswith(HEALTH_CHECK_RID_PREFIX)


@lru_cache(maxsize=1)
def tracked_request_class() -> Any:
    """``GenerateReqInput`` that records every id SGLang gives it or its samples.

    For n > 1 SGLang makes one object per prompt (``__getitem__``), copies it per sample and gives
    each copy a fresh id (``regenerate_rid``) before it reaches the scheduler. ``copy.copy`` keeps
    the instance dictionary, so all copies share one ``tracked_ids`` set.
    """
    from sglang.srt.managers.io_struct import GenerateReqInput

    class TrackedRequest(GenerateReqInput):
        tracked_ids: set[str]

        def regenerate_rid(self) -> str:
            self.rid = new_request_id()
            self.tracked_ids.add(self.rid)
            return str(self.rid)

        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            if sample.__class__ is not TrackedRequest:
                sample.__class__ = TrackedRequest
                sample.tracked_ids = self.tracked_ids
                self.tracked_ids.add(sample.rid)
            return sample

    return TrackedRequest


def new_request(fields: Mapping[str, Any], request_id: str) -> tuple[Any, set[str]]:
    """A streaming SGLang request and the live set of all ids that belong to it."""
    request = tracked_request_class()(rid=request_id, stream=True, **fields)
    if is_probe_id(request_id) and "log_metrics" in request_fields():
        # Clients' latencies must not be mixed with those of health probes.
        request.log_metrics = False
    request.tracked_ids = {request_id}
    return request, request.tracked_ids


@lru_cache(maxsize=1)
def request_fields() -> frozenset[str]:
    """Names that the installed SGLang accepts in a generate request."""
    from sglang.srt.managers.io_struct import GenerateReqInput

    return frozenset(field.name for field in dataclasses.fields(GenerateReqInput))


def generate(tokenizer_manager: Any, request: Any) -> Any:
    """SGLang's asynchronous generator for the request, as its own servers use it."""
    return tokenizer_manager.generate_request(request, None)


def is_last(output: Any) -> bool:
    """Whether an output of SGLang ends its sample."""
    return isinstance(output, Mapping) and bool(output["meta_info"].get("finish_reason"))


def abort(tokenizer_manager: Any, request_ids: Iterable[str]) -> None:
    """Abort every id that SGLang still holds.

    SGLang ignores an abort that overtakes its request, so ids that were not dispatched yet are
    left out: whoever iterates their stream ends it, and SGLang then drops them itself.
    """
    states = request_states(tokenizer_manager)
    for request_id in request_ids:
        state = states.get(request_id)
        if state is not None and getattr(state, "dispatched", True):
            tokenizer_manager.abort_request(rid=request_id, abort_all=False)


def held(tokenizer_manager: Any, request_ids: Iterable[str]) -> bool:
    """Whether SGLang still holds any of the ids."""
    states = request_states(tokenizer_manager)
    return any(request_id in states for request_id in request_ids)


def dp_layout(server_args: Any) -> tuple[int, bool]:
    """``(data-parallel ranks, whether they share one tensor-parallel group)``.

    SGLang 0.5.23 turned ``--dp-size N --enable-dp-attention`` into ``attn_dp_size``; older
    releases keep the two flags.
    """
    args = resolved(server_args)
    dp_size = int(getattr(args, "dp_size", 1) or 1)
    attention_dp_size = getattr(args, "attn_dp_size", 1)
    if isinstance(attention_dp_size, int) and attention_dp_size > 1:
        return dp_size * attention_dp_size, True
    return dp_size, bool(getattr(args, "enable_dp_attention", False))


def read_limits(engine: Any) -> EngineLimits:
    """What requests are checked against, read from a started engine."""
    manager = engine.tokenizer_manager
    args = resolved(engine.server_args)
    config = manager.model_config
    tokenizer = manager.tokenizer
    eos_token_id = getattr(tokenizer, "eos_token_id", None)
    dp_ranks, _ = dp_layout(engine.server_args)
    return EngineLimits(
        vocab_size=int(config.vocab_size),
        context_length=int(manager.context_len),
        reserved_tokens=int(manager.num_reserved_tokens),
        max_input_length=getattr(manager, "max_req_input_len", None),
        rejects_long_totals=bool(manager.validate_total_tokens),
        truncates=bool(args.allow_auto_truncate),
        has_tokenizer=tokenizer is not None,
        has_eos=isinstance(eos_token_id, int) or bool(getattr(config, "hf_eos_token_id", None)),
        accepts_media=bool(getattr(config, "is_multimodal", False)),
        dp_ranks=dp_ranks,
        handover_logprobs=compat_disagg.handover_logprobs(),
        priorities=bool(args.enable_priority_scheduling),
        guided=args.grammar_backend not in (None, "none"),
        reasoning_parser=_reasoning_parser(manager, args),
        strict_thinking=bool(getattr(args, "enable_strict_thinking", False)),
        default_sampling=_default_sampling(config),
        request_fields=request_fields(),
    )


def _default_sampling(model_config: Any) -> dict[str, float]:
    """What SGLang's own server falls back to with ``--sampling-defaults model``, its default."""
    read = getattr(model_config, "get_default_sampling_params", None)
    return {} if read is None else dict(read() or {})


def _reasoning_parser(manager: Any, args: Any) -> str | None:
    """``auto`` is resolved by the tokenizer manager from the chat template."""
    if args.reasoning_parser != "auto":
        return args.reasoning_parser or None
    return manager.config_value("reasoning_parser") or None


def loaded_loras(tokenizer_manager: Any) -> dict[str, str]:
    """Local paths of the adapters that the engine was started with, by name."""
    if not getattr(tokenizer_manager, "enable_lora", False):
        return {}
    known = tokenizer_manager.lora_ref_cache
    return {name: str(reference.lora_path) for name, reference in known.items()}


def end_locally(tokenizer_manager: Any, request_ids: Iterable[str]) -> None:
    """End requests inside the tokenizer manager alone, as if the scheduler had aborted them.

    For the time after a scheduler died, when no answer to an abort will ever come.
    """
    from sglang.srt.managers.io_struct import AbortReq

    states = request_states(tokenizer_manager)
    for request_id in [rid for rid in request_ids if rid in states]:
        tokenizer_manager._handle_abort_req(
            AbortReq(rid=request_id, abort_message="the engine died")
        )


def start_receiving(tokenizer_manager: Any) -> None:
    """Start SGLang's receive loop on the running loop now rather than with the first request.

    It registers SGLang's signal handlers, so ours are re-asserted afterwards. It also starts a task
    that, within 5 s of those handlers, would end this process with code 0 whatever the shutdown is
    still doing and whatever its reason was: that one is replaced.
    """
    if hasattr(tokenizer_manager, "sigterm_watchdog"):
        tokenizer_manager.sigterm_watchdog = _the_shutdown_ends_the_process
    tokenizer_manager.auto_create_handle_loop()


async def _the_shutdown_ends_the_process() -> None:
    """In place of SGLang's `TokenizerManager.sigterm_watchdog`."""
