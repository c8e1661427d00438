"""SGLang flags that have no meaning, or a silently different one, for a worker type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError

DLLM_FLAG = "--dllm-algorithm"


class Refusal(msgspec.Struct, frozen=True):
    """``dest`` set to anything but None, false and ``harmless`` is refused."""

    dest: str
    reason: str
    harmless: Any = None

    @property
    def flag(self) -> str:
        return "--" + self.dest.replace("_", "-")

    def applies(self, explicit: Mapping[str, Any]) -> bool:
        value = explicit.get(self.dest)
        return value not in (None, False, []) and value != self.harmless


_NO_DRAFT = "there is nothing to draft for: {} generates no token after token"
_NO_LORA = "adapters are served by workers that generate token after token"

REFUSED: Mapping[WorkerType, Sequence[Refusal]] = {
    WorkerType.EMBEDDING: (
        Refusal("speculative_algorithm", _NO_DRAFT.format("an embedding worker")),
        Refusal("enable_lora", _NO_LORA),
        Refusal("lora_paths", _NO_LORA),
        Refusal("kv_events_config", "no router places embedding requests by their prefix"),
    ),
    # SGLang turns the last four off with a line in its log.
    WorkerType.LLM_DIFFUSION: (
        Refusal("speculative_algorithm", _NO_DRAFT.format("a diffusion language model")),
        Refusal("is_embedding", "a diffusion language model makes no embeddings"),
        Refusal("enable_lora", _NO_LORA),
        Refusal("lora_paths", _NO_LORA),
        Refusal("pp_size", "pipeline stages cannot share a block", harmless=1),
        Refusal("enable_mixed_chunk", "blocks do not mix with chunks of prompts"),
    ),
}
# Dynamo's flags about generated text; embeddings are no text.
_ABOUT_TEXT = (
    "dyn_tool_call_parser",
    "dyn_reasoning_parser",
    "dyn_default_thinking_mode",
    "custom_jinja_template",
    "endpoint_types",
)
_CHOSEN_BY: Mapping[WorkerType, tuple[str, str]] = {
    WorkerType.EMBEDDING: ("embedding_worker", "--embedding-worker"),
    WorkerType.LLM_DIFFUSION: ("dllm_algorithm", DLLM_FLAG),
}


def check_type(
    worker_type: WorkerType, explicit: Mapping[str, Any], sources: Mapping[str, str]
) -> None:
    """``sources``: how the worker's and Dynamo's flags were set, by destination.

    Raises ConfigError naming both flags.
    """
    dest, flag = _CHOSEN_BY.get(worker_type, ("", ""))
    for refusal in REFUSED.get(worker_type, ()):
        if refusal.applies(explicit):
            raise ConfigError(
                f"{refusal.flag} is refused with {sources.get(dest, flag)}: {refusal.reason}"
            )
    if worker_type is WorkerType.EMBEDDING:
        for name in (sources[text] for text in _ABOUT_TEXT if text in sources):
            raise ConfigError(
                f"{name} is refused with {sources.get(dest, flag)}: it is about generated text"
            )
    if explicit.get("is_embedding") and worker_type not in REFUSED:
        raise ConfigError(
            "--is-embedding needs --embedding-worker, which sets it: no other worker type answers "
            "embedding requests"
        )
