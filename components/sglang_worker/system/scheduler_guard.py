"""In scheduler processes: a weight call that fails is answered as failed, and the scheduler lives.

Read in SGLang 0.5.23 ``scheduler_components/weight_updater.py``: an unreadable payload, an unknown
load format or the weights of another model raise through the scheduler's loop, which ends the whole
worker. Guarded only where the scheduler has no peers: with several ranks one that went on alone
would leave the others waiting in a barrier for ever.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)

MODULE = "sglang.srt.managers.scheduler_components.weight_updater"
CLASS = "SchedulerWeightUpdaterManager"
# Method -> its output class in `io_struct` and the fields besides success and message.
GUARDED: dict[str, tuple[str, dict[str, Any]]] = {
    "update_weights_from_disk": ("UpdateWeightFromDiskReqOutput", {"num_paused_requests": 0}),
    "update_weights_from_tensor": ("UpdateWeightsFromTensorReqOutput", {}),
    "update_weights_from_distributed": ("UpdateWeightsFromDistributedReqOutput", {}),
    "update_weights_from_ipc": ("UpdateWeightsFromIPCReqOutput", {}),
    "begin_weight_update": ("BeginWeightUpdateReqOutput", {}),
    "end_weight_update": ("EndWeightUpdateReqOutput", {}),
    "init_weights_update_group": ("InitWeightsUpdateGroupReqOutput", {}),
    "destroy_weights_update_group": ("DestroyWeightsUpdateGroupReqOutput", {}),
}


def install(*, world_size: int) -> tuple[str, ...]:
    """Guard this process's scheduler; returns the names that were guarded.

    Methods that this SGLang release lacks are left out. Call it before the scheduler is built:
    it binds the methods when it starts.
    """
    if world_size != 1:
        return ()
    import importlib

    from sglang.srt.managers import io_struct

    manager = getattr(importlib.import_module(MODULE), CLASS, None)
    guarded = []
    for name, (output, more) in GUARDED.items():
        method = getattr(manager, name, None)
        answer = getattr(io_struct, output, None)
        if method is not None and answer is not None:
            setattr(manager, name, guard(method, functools.partial(answer, **more)))
            guarded.append(name)
    return tuple(guarded)


def guard(method: Callable[..., Any], failed: Callable[..., Any]) -> Callable[..., Any]:
    """``method``, answering ``failed(success=False, message=…)`` instead of raising."""

    @functools.wraps(method)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            logger.exception("%s failed; the scheduler goes on", method.__name__)
            reason = str(error) or type(error).__name__
            return failed(
                success=False,
                message=f"{method.__name__} failed: {reason} "
                "(what was written before the failure stays: update the weights again)",
            )

    return guarded
