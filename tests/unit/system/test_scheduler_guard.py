from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

from sglang_worker.system.scheduler_guard import guard, refuse_second_profile


class Kind(Enum):
    START_PROFILE = 1
    STOP_PROFILE = 2


def failed(message: str) -> dict[str, Any]:
    return {"success": False, "message": message}


def test_a_failing_call_is_answered_as_failed() -> None:
    def update_weights(payload: Any) -> str:
        if payload is None:
            raise KeyError("norm.weight")
        return "updated"

    guarded = guard(update_weights, failed)
    assert guarded(1) == "updated"
    answer = guarded(None)
    assert answer["success"] is False
    assert "update_weights failed: 'norm.weight'" in answer["message"]


def test_what_ends_the_process_on_purpose_still_does() -> None:
    def stop() -> None:
        raise SystemExit(3)

    try:
        guard(stop, failed)()
    except SystemExit as leaving:
        assert leaving.code == 3
    else:
        raise AssertionError("the exit was swallowed")


def test_a_second_profile_is_refused_while_one_is_under_way() -> None:
    asked: list[Kind] = []

    def profile(_manager: Any, request: Any) -> str:
        asked.append(request.req_type)
        return "done"

    guarded = refuse_second_profile(profile, failed)
    idle = SimpleNamespace(profile_in_progress=False)
    busy = SimpleNamespace(profile_in_progress=True)
    start, stop = (SimpleNamespace(req_type=kind) for kind in Kind)
    assert guarded(idle, start) == "done"
    assert guarded(busy, start)["success"] is False
    assert guarded(busy, stop) == "done"
    assert asked == [Kind.START_PROFILE, Kind.STOP_PROFILE]
