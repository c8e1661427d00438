"""A weights group that can never come together is refused before the scheduler waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.system.argument_checks import EngineFacts, check_arguments
from sglang_worker.system.faults import BadRequest

FACTS = EngineFacts(device="cpu", tp_size=2)
GROUP = {"master_address": "h", "master_port": 29555, "rank_offset": 1, "world_size": 3}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"master_port": -1}, "master_port: must be between"),
        ({"master_port": 65536}, "master_port: must be between"),
        ({"rank_offset": -4}, "rank_offset: must be at least 0"),
        ({"world_size": 0}, "world_size: 0 members cannot hold ranks 1 to 2"),
        ({"world_size": 2}, "world_size: 2 members cannot hold"),
    ],
)
def test_a_group_that_cannot_hold_this_engine_is_refused(
    change: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRequest, match=named):
        check_arguments("init_weights_update_group", {**GROUP, **change}, FACTS)


def test_a_group_that_holds_trainer_and_engine_is_left_alone() -> None:
    check_arguments("init_weights_update_group", GROUP, FACTS)
