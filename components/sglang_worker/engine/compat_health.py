"""What SGLang's tokenizer manager shows of the engine's progress, found by probing.

Read in SGLang 0.5.20 to 0.5.23: ``managers/tokenizer_manager.py`` (``last_receive_tstamp``,
``rid_to_state``, ``model_update_result``), ``managers/communicator.py`` (``_result_event``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sglang_worker.engine import compat
from sglang_worker.engine.heartbeat import HeartbeatReader
from sglang_worker.observability.health.judge import Reading
from sglang_worker.requests.ids import is_probe_id

_SUFFIX = "_communicator"
# Questions that a turning scheduler answers in passing; a hung one would hide behind them.
_QUESTIONS = ("get_", "list_", "check_", "flush_cache")
_WAITING = ("_result_event", "_ready_event")


class SglangActivity:
    """Readings of an `sgl.Engine` (`observability.health.activity.Activity`)."""

    def __init__(self, tokenizer_manager: Any, folder: Path | None, server_args: Any) -> None:
        """``folder``: of the runner reports, where schedulers keep their counters."""
        ranks, shared = compat.dp_layout(server_args)
        self._manager = tokenizer_manager
        self._turns = HeartbeatReader(folder, ranks, one_replica=shared)
        self._calls = {
            name.removesuffix(_SUFFIX): value
            for name, value in vars(tokenizer_manager).items()
            if name.endswith(_SUFFIX) and not name.startswith(_QUESTIONS)
        }

    def read(self) -> Reading:
        return Reading(
            turns=self._turns.read(),
            outputs=getattr(self._manager, "last_receive_tstamp", None),
            others=self._others(),
            control=self._control(),
        )

    def held_probes(self) -> int:
        return sum(is_probe_id(rid) for rid in compat.request_states(self._manager))

    def _others(self) -> bool:
        states = compat.request_states(self._manager)
        return any(not is_probe_id(rid) and not compat.is_health_request(rid) for rid in states)

    def _control(self) -> str | None:
        """A call to the schedulers that is not answered yet."""
        update = getattr(self._manager, "model_update_result", None)
        if update is not None and not update.done():
            return "update_weights_from_disk"
        for name, call in self._calls.items():
            if any(getattr(call, event, None) is not None for event in _WAITING):
                return name
        return None
