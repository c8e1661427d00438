"""In scheduler processes: a maintenance call that fails is an answer, and the scheduler lives.

Read in SGLang 0.5.23 ``scheduler_components/weight_updater.py`` and ``profiler_manager.py``: an
unreadable payload, an unknown load format, the weights of another model or a second profile raise
through the scheduler's loop, which ends the whole worker.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

logger = logging.getLogger(__name__)

_COMPONENTS = "sglang.srt.managers.scheduler_components."
_WEIGHTS = (_COMPONENTS + "weight_updater", "SchedulerWeightUpdaterManager")
_PROFILER = (_COMPONENTS + "profiler_manager", "SchedulerProfilerManager")


class Guarded(msgspec.Struct, frozen=True):
    """One method of a scheduler component, the `io_struct` class of its answer, and that class's
    fields besides success and message."""

    owner: tuple[str, str]
    method: str
    output: str
    more: dict[str, Any] = {}


GUARDED = (
    Guarded(
        _WEIGHTS,
        "update_weights_from_disk",
        "UpdateWeightFromDiskReqOutput",
        {"num_paused_requests": 0},
    ),
    Guarded(_WEIGHTS, "update_weights_from_tensor", "UpdateWeightsFromTensorReqOutput"),
    Guarded(_WEIGHTS, "update_weights_from_distributed", "UpdateWeightsFromDistributedReqOutput"),
    Guarded(_WEIGHTS, "update_weights_from_ipc", "UpdateWeightsFromIPCReqOutput"),
    Guarded(_WEIGHTS, "begin_weight_update", "BeginWeightUpdateReqOutput"),
    Guarded(_WEIGHTS, "end_weight_update", "EndWeightUpdateReqOutput"),
    Guarded(_WEIGHTS, "init_weights_update_group", "InitWeightsUpdateGroupReqOutput"),
    Guarded(_WEIGHTS, "destroy_weights_update_group", "DestroyWeightsUpdateGroupReqOutput"),
    Guarded(_PROFILER, "_profile", "ProfileReqOutput"),
)


def install(*, world_size: int) -> tuple[str, ...]:
    """Guard this process's scheduler; returns the names of the methods that were guarded.

    Failures are caught only where the scheduler has no peers: with several ranks one that went on
    alone would leave the others waiting in a barrier for ever. Methods that this SGLang release
    lacks are left out. Call it before the scheduler is built: it binds the methods when it starts.
    """
    from sglang.srt.managers import io_struct

    done = []
    for one in GUARDED:
        owner = _owner(one.owner)
        method, output = getattr(owner, one.method, None), getattr(io_struct, one.output, None)
        if method is None or output is None:
            continue
        failed = functools.partial(output, success=False, **one.more)
        if world_size == 1:
            method = guard(method, failed)
            done.append(one.method)
        if one.owner is _PROFILER:
            method = refuse_second_profile(method, failed)
        setattr(owner, one.method, method)
    return tuple(done)


def guard(method: Callable[..., Any], failed: Callable[..., Any]) -> Callable[..., Any]:
    """``method``, answering ``failed(message=…)`` instead of raising."""

    @functools.wraps(method)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            logger.exception("%s failed; the scheduler goes on", method.__name__)
            reason = str(error) or type(error).__name__
            return failed(
                message=f"{method.__name__.lstrip('_')} failed: {reason} "
                "(what was done before the failure stays done)"
            )

    return guarded


def refuse_second_profile(
    profile: Callable[..., Any], failed: Callable[..., Any]
) -> Callable[..., Any]:
    """SGLang notices a profile under way, ignores its own refusal, and starts a second profiler."""

    @functools.wraps(profile)
    def guarded(manager: Any, request: Any) -> Any:
        starts = request.req_type.name == "START_PROFILE"
        if starts and getattr(manager, "profile_in_progress", False):
            return failed(message="Profiling is already in progress: stop it first.")
        return profile(manager, request)

    return guarded


def _owner(where: tuple[str, str]) -> Any:
    try:
        return getattr(importlib.import_module(where[0]), where[1], None)
    except ImportError:
        return None
