from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sglang_worker.system.builtin import server_info_route
from sglang_worker.system.server_info import ServerInfo

from .toy_info import ToyInfo, info_of
from .toy_routes import ask


async def test_concurrent_reads_share_one_query() -> None:
    toy = ToyInfo()
    info = info_of(toy)
    await info.prime()
    answers = await asyncio.gather(*(info.read() for _ in range(20)))
    assert toy.queries == 1
    assert {answer["internal_states"][0]["n"] for answer in answers} == {1}
    assert answers[0]["linear_attn_runners"] == [{"runner": "target"}]
    assert "internal_states_age_s" not in answers[0]
    assert "very-secret" not in json.dumps(answers)


async def test_a_busy_scheduler_gets_one_query_and_callers_the_last_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sglang_worker.system.server_info.PATIENCE_S", 0.05)
    toy = ToyInfo()
    info = info_of(toy)
    await info.prime()
    toy.release.clear()
    for _ in range(3):
        answer = await info.read()
    assert toy.queries == 1
    assert answer["internal_states"] == [{"n": 0}]
    assert answer["internal_states_age_s"] >= 0.05
    toy.release.set()
    assert (await info.read())["internal_states"][0]["n"] == 1


async def test_a_failed_query_leaves_the_last_value() -> None:
    toy = ToyInfo()

    async def broken() -> list[dict[str, Any]]:
        raise RuntimeError("no answer")

    info = ServerInfo(toy.all, broken, list)
    await info.prime()
    assert (await info.read())["internal_states"] == [{"n": 0}]
    assert await ask([server_info_route(info)], "/engine/server_info", {"x": 1}) == (
        400,
        {"error": "server_info takes no arguments"},
    )
