"""The hooks that a scheduler process carries, registered with SGLang's HookRegistry.

The registry only logs a hook that failed to apply, and patches a target once, so every target is
looked at again afterwards: a hook that is not in place is a startup error, not a silent gap.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

import msgspec

from sglang_worker.errors import StartupCheckError
from sglang_worker.runners import compat, fusion, guard
from sglang_worker.runners.folder import ReportFolder
from sglang_worker.runners.observe import Notes, observe_rank
from sglang_worker.runners.records import RankIdentity, RankRecord
from sglang_worker.runners.report import SERVER_INFO_KEY, to_builtins

_ATTENTION = "sglang.srt.layers.attention."
WRAPPER = _ATTENTION + "attention_registry.attn_backend_wrapper"
RESOLVER = _ATTENTION + "linear.utils.resolve_linear_attn_backends"
BACKEND_INIT = _ATTENTION + "hybrid_linear_attn_backend.MambaAttnBackendBase.__init__"
LOADER = "sglang.srt.layers.moe.utils.resolve_shared_experts_config"
INIT_INFO = "sglang.srt.managers.scheduler.Scheduler.get_init_info"
INTERNAL_STATE = "sglang.srt.managers.scheduler.Scheduler.get_internal_state"
# SGLang before 0.5.23 decides shared-experts fusion elsewhere; the report then asks again.
OPTIONAL_TARGETS = frozenset({LOADER})


class Hook(msgspec.Struct, frozen=True):
    target: str
    kind: str
    function: Callable[..., Any]


class RunnerHooks:
    """State and functions of the hooks of one scheduler process; single-threaded by SGLang."""

    def __init__(self, identity: RankIdentity, folder: ReportFolder | None, strict: bool) -> None:
        self.notes = Notes()
        self._identity = identity
        self._folder = folder
        self._strict = strict
        self._being_wrapped: Any = None

    def table(self) -> tuple[Hook, ...]:
        return (
            Hook(WRAPPER, "AROUND", self.wrap_attention_backend),
            Hook(RESOLVER, "AROUND", self.resolve_backends),
            Hook(BACKEND_INIT, "BEFORE", self.before_linear_backend),
            Hook(LOADER, "AROUND", self.resolve_shared_experts),
            Hook(INIT_INFO, "AFTER", self.after_init_info),
            Hook(INTERNAL_STATE, "AFTER", self.after_internal_state),
        )

    def wrap_attention_backend(
        self, original: Callable[..., Any], runner: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self._guarded(guard.refuse_linear_standalone_draft, runner)
        outer, self._being_wrapped = self._being_wrapped, runner
        try:
            return original(runner, *args, **kwargs)
        finally:
            self._being_wrapped = outer

    def resolve_backends(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        default = args[0] if args else kwargs.get("prefill_default")
        if self._being_wrapped is not None:
            self.notes.note_prefill_default(self._being_wrapped, default)
        return original(*args, **kwargs)

    def before_linear_backend(self, backend: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
        complaint = self._guarded(guard.require_stamp, backend, runner, strict=self._strict)
        if complaint is not None:
            self.notes.errors.append(complaint)

    def resolve_shared_experts(
        self, original: Callable[..., Any], model_class: type, hf_config: Any, quant_config: Any
    ) -> Any:
        decided = original(model_class, hf_config, quant_config)
        answers = fusion.ask(
            model_class,
            hf_config,
            quant_config,
            switched_off=compat.fusion_switched_off(),
            fused=decided.num_fused_shared_experts,
        )
        self.notes.note_answers(decided, answers)
        return decided

    def after_init_info(self, result: Any, scheduler: Any) -> None:
        """Hands the rank's report over before the process says that it is ready.

        A failure here is reported, not raised: SGLang would kill the worker with a signal, and
        the operator would never read why. The parent's verification refuses the record.
        """
        if self._folder is None:
            return
        try:
            record = observe_rank(scheduler, self._identity, self.notes)
        except Exception as error:
            self.fail(f"the report could not be collected: {error!r}")
            return
        self._folder.write(record)

    def after_internal_state(self, result: Any, scheduler: Any, *args: Any) -> Any:
        record = observe_rank(scheduler, self._identity, self.notes)
        result.internal_state[SERVER_INFO_KEY] = to_builtins(r.report for r in record.runners)
        return result

    def fail(self, complaint: str) -> None:
        """Leaves `complaint` where the parent finds it."""
        self.notes.errors.append(complaint)
        if self._folder is not None:
            self._folder.write(RankRecord(self._identity, errors=tuple(self.notes.errors)))

    def _guarded(self, check: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a check; its sentence outlives the process that SGLang kills for it."""
        try:
            return check(*args, **kwargs)
        except StartupCheckError as error:
            self.fail(str(error))
            raise


def install(hooks: RunnerHooks) -> None:
    """Registers and applies the hooks; raises StartupCheckError naming each that did not apply.

    Called in a scheduler process before SGLang's own entry runs. A forked process inherits the
    parent's registry, so what the parent applied stays; ours are added here.
    """
    from sglang.srt.plugins import load_plugins
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    load_plugins()
    wanted = [h for h in hooks.table() if h.target not in OPTIONAL_TARGETS or _exists(h.target)]
    before = {hook.target: _resolve(hook.target) for hook in wanted}
    for hook in wanted:
        HookRegistry.register(hook.target, hook.function, HookType[hook.kind])
    HookRegistry.apply_hooks()
    missing = [t for t, function in before.items() if function is None or _resolve(t) is function]
    if missing:
        raise StartupCheckError(
            "the runner report's hooks did not apply to " + ", ".join(missing) + "; another "
            "SGLang plugin may have patched the same functions, or this SGLang lacks them"
        )


def _exists(target: str) -> bool:
    return _resolve(target) is not None


def _resolve(target: str) -> Any | None:
    """The object that `target` names, or None when this SGLang has no such thing."""
    owner, _, name = target.rpartition(".")
    try:
        return getattr(pkgutil.resolve_name(owner), name, None)
    except (ImportError, AttributeError):
        return None
