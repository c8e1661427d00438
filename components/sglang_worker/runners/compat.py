"""The only place that reaches into SGLang's schedulers, workers and runners.

Written against SGLang 0.5.20 to 0.5.23 by probing for attributes, never by comparing versions.
Everything returned is plain data or an opaque runner object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sglang_worker.runners.agreement import KernelName
from sglang_worker.runners.families import Family, family_of_backend
from sglang_worker.runners.report import AttentionPair, Stamp
from sglang_worker.runners.sources import Leaves

STAMP_ATTRIBUTE = "linear_attn_backends"

_DISPATCHER_KERNELS = {
    "decode": "decode_kernel",
    "prefill": "extend_kernel",
    "verify": "verify_kernel",
    "tree_verify": "tree_verify_kernel",
}
# Where an attention backend may hold others: hybrids, two-batch overlap, per-step draft containers.
_NESTED = (
    "linear_attn_backend",
    "primary",
    "children",
    "attn_backend_list",
    "attn_backends",
    "prefill_backend",
    "decode_backend",
)
_FUSED_DECODE_ARGUMENTS = ("_k3_fused_decode_args", "_k3_hip_fused_decode_args")


def named_runners(scheduler: Any) -> list[tuple[str, Any]]:
    """(name, runner) of the target and each draft; several drafts are draft[0], draft[1]…"""
    drafts = draft_runners(scheduler)
    named = [("target", scheduler.tp_worker.model_runner)]
    if len(drafts) == 1:
        return [*named, ("draft", drafts[0])]
    return named + [(f"draft[{i}]", runner) for i, runner in enumerate(drafts)]


def draft_runners(scheduler: Any) -> list[Any]:
    """The draft runners of any speculative algorithm.

    None without speculation, for NGRAM and UNO (no draft model), and on pipeline stages that host
    no draft. EAGLE, EAGLE3, NEXTN, STANDALONE and frozen-KV MTP hold a draft worker with
    `draft_runners` (multi-layer EAGLE: one per step); DFLASH and DSPARK hold a plain model worker.
    """
    speculative = getattr(scheduler, "draft_worker", None)
    draft = getattr(speculative, "draft_worker", None)
    if draft is None:
        return []
    runners = getattr(draft, "draft_runners", None)
    if runners is None:
        runners = getattr(draft, "model_runner_list", None) or [draft.model_runner]
    return list(runners)


def is_standalone(runner: Any) -> bool:
    algorithm = getattr(runner, "spec_algorithm", None)
    return algorithm is not None and bool(algorithm.is_standalone())


def drafts_are_trees(runner: Any) -> bool:
    """Whether verification meets tree-shaped drafts: topk > 1, or NGRAM's trees."""
    from sglang.srt.runtime_context import get_spec

    algorithm = getattr(runner, "spec_algorithm", None)
    if algorithm is not None and algorithm.is_ngram():
        return True
    return (get_spec().speculative_eagle_topk or 0) > 1


def read_stamp(runner: Any) -> Stamp | None:
    """The runner's own stamp, or None when SGLang never set one."""
    value = getattr(runner, STAMP_ATTRIBUTE, None)
    if value is None:
        return None
    return Stamp(decode=value.decode.value, prefill=value.prefill.value, verify=value.verify.value)


def attention_pair(runner: Any) -> AttentionPair:
    return AttentionPair(
        decode=getattr(runner, "decode_attention_backend_str", None),
        prefill=getattr(runner, "prefill_attention_backend_str", None),
    )


def linear_backend(runner: Any) -> Any | None:
    """The linear-attention backend that the runner's forward passes reach, or None.

    A draft's own backends replace what its ModelRunner built at first, so only the attributes
    that a forward pass reads are followed.
    """
    seen: set[int] = set()
    for attribute in ("attn_backend", "draft_attn_backend"):
        for backend in _walk(getattr(runner, attribute, None), seen):
            if backend_family(backend) is not None:
                return backend
            custom = getattr(backend, "linear_attn_backend", None)
            if custom is not None:
                return custom
    return None


def _walk(backend: Any, seen: set[int]) -> Iterator[Any]:
    if backend is None or id(backend) in seen:
        return
    seen.add(id(backend))
    yield backend
    for attribute in _NESTED:
        nested = getattr(backend, attribute, None)
        for child in nested if isinstance(nested, list | tuple) else (nested,):
            yield from _walk(child, seen)


def backend_family(backend: Any) -> Family | None:
    return family_of_backend(cls.__name__ for cls in type(backend).__mro__)


def config_family(model_config: Any) -> Family | None:
    """The family that SGLang's own configuration probes give a model, or None for softmax only."""
    from sglang.srt.configs import hybrid_arch

    probes: tuple[tuple[str, Family], ...] = (
        ("hybrid_gdn_config", Family.GDN),
        ("hybrid_kda_config", Family.KDA),
        ("kimi_linear_config", Family.KDA),
        ("hybrid_lightning_config", Family.LIGHTNING),
        ("mamba2_config", Family.MAMBA2),
    )
    for name, family in probes:
        probe = getattr(hybrid_arch, name, None)
        config = probe(model_config) if probe is not None else None
        if config is not None:
            return Family.SHORT_CONV if _is_short_conv(config) else family
    return None


def _is_short_conv(config: Any) -> bool:
    names = {cls.__name__ for cls in type(config).__mro__}
    return bool(
        names & {"ZayaConfig", "Lfm2Config", "Lfm2MoeConfig", "Lfm2VlConfig", "InklingModelConfig"}
    )


def kernels_of(runner: Any, backend: Any) -> dict[str, KernelName]:
    """The kernels that `backend` would call, keyed as in the report.

    A backend without a kernel dispatcher is its own kernel, under the key ``backend``.
    """
    dispatcher = getattr(backend, "kernel_dispatcher", None)
    if dispatcher is None:
        return {"backend": _class_name(backend)}
    kernels = {
        phase: _class_name(getattr(dispatcher, attribute))
        for phase, attribute in _DISPATCHER_KERNELS.items()
        if getattr(dispatcher, attribute, None) is not None
    }
    return kernels | _fused_kernels(runner, backend)


def _fused_kernels(runner: Any, backend: Any) -> dict[str, KernelName]:
    """KDA's fused kernels, which bypass the dispatcher, when they are engaged."""
    fused: dict[str, KernelName] = {}
    if backend_family(backend) is not Family.KDA:
        return fused
    verify = getattr(backend, "_fused_chain_verify_fn", None)
    if verify is not None:
        fused["fused_verify"] = KernelName(verify.__name__, verify.__module__)
    for layer in runner.model.modules():
        if any(getattr(layer, name, None) is not None for name in _FUSED_DECODE_ARGUMENTS):
            fused["fused_decode"] = KernelName("kda_fused_decode")
            break
    return fused


def _class_name(value: Any) -> KernelName:
    return KernelName(type(value).__name__, type(value).__module__)


def typed_leaves(server_args: Any) -> Leaves:
    """What the operator set: SGLang's record keeps raw input, its resolver writes elsewhere."""
    return _leaves(server_args)


def published_leaves() -> Leaves:
    """What this process's runners resolve from."""
    from sglang.srt.runtime_context import get_exec

    return _leaves(get_exec().mamba)


def _leaves(holder: Any) -> Leaves:
    return Leaves(
        base=getattr(holder, "linear_attn_backend", None),
        decode=getattr(holder, "linear_attn_decode_backend", None),
        prefill=getattr(holder, "linear_attn_prefill_backend", None),
        verify=getattr(holder, "linear_attn_verify_backend", None),
    )


def attention_dp_enabled() -> bool:
    """Data parallelism inside the tensor-parallel world: tp ranks are already unique there."""
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    # Before 0.5.23 the published configuration carries the flag itself.
    older = getattr(parallel, "enable_dp_attention", False)
    return bool(getattr(parallel, "attn_dp_enabled", older))


def launched_ranks(server_args: Any) -> list[int]:
    """The report ranks that this node's launch starts; call where SGLang's config is published."""
    from sglang.srt.entrypoints.engine import _calculate_rank_ranges
    from sglang.srt.runtime_context import get_parallel

    parallel = get_parallel()
    pipeline, tensor, *_ = _calculate_rank_ranges(server_args.node_rank)
    replicas = 1 if attention_dp_enabled() else parallel.dp_size
    return [
        report_rank(dp, pp, tp, pp_size=parallel.pp_size, tp_size=parallel.tp_size)
        for dp in range(replicas)
        for pp in pipeline
        for tp in tensor
    ]


def report_rank(dp: int, pp: int, tp: int, *, pp_size: int, tp_size: int) -> int:
    return ((dp * pp_size) + pp) * tp_size + tp


def replica_of(server_args: Any, dp_rank: int | None) -> int:
    """The `dp` of the rank formula, before SGLang's configuration is published.

    Attention-DP groups share one tensor-parallel world whose tp ranks are already unique.
    """
    from sglang.srt import runtime_context
    from sglang.srt.arg_groups.overrides import resolving_view

    probe = getattr(runtime_context, "attn_dp_enabled_of", None)
    if probe is not None:
        shared_world = bool(probe(resolving_view(server_args)))
    else:
        shared_world = bool(getattr(server_args, "enable_dp_attention", False))
    return 0 if shared_world else (dp_rank or 0)


def scheduler_infos(engine: Any) -> list[dict[str, Any]]:
    """The start handshake's dictionaries; `get_server_info` spreads the first one."""
    infos: list[dict[str, Any]] = engine._scheduler_init_result.scheduler_infos
    return infos


def fusion_switched_off() -> bool:
    """The process-wide setting; a model's own reason to stay off is not in it."""
    from sglang.srt.runtime_context import get_exec

    return bool(get_exec().moe.disable_shared_experts_fusion)


def model_facts(runner: Any) -> Mapping[str, Any]:
    """Class, quantization and Hugging Face configuration of a loaded model."""
    config = runner.model_config
    return {
        "model_class": type(runner.model),
        "hf_config": config.hf_config,
        "quantization": getattr(config, "quantization", None),
        "shared_experts": getattr(runner.model, "shared_experts_config", None),
        "fused_count": getattr(runner.model, "num_fused_shared_experts", None),
    }


def draft_model_config(server_args: Any) -> Any:
    """SGLang's ModelConfig of the draft checkpoint; reads its config.json."""
    from sglang.srt.configs.model_config import ModelConfig

    return ModelConfig.from_server_args(
        server_args,
        model_path=server_args.speculative_draft_model_path,
        model_revision=getattr(server_args, "speculative_draft_model_revision", None),
        is_draft_model=True,
    )
