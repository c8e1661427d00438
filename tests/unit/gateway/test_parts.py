"""Environment, ids, frames and refusals of gateways."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import msgspec
import pytest
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    SystemSettings,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.gateway import wire
from sglang_worker.gateway.process import changed, own_variables
from sglang_worker.gateway.refusals import NoLifecycle
from sglang_worker.requests import ids
from sglang_worker.system.control import LIFECYCLE_ROUTES, OPERATIONS
from sglang_worker.system.state import WorkerState


def config(**system: int) -> WorkerConfig:
    return WorkerConfig(
        worker_type=WorkerType.AGGREGATED,
        endpoint=EndpointAddress("dynamo", "backend", "generate"),
        engine=EngineFlags(explicit={"model_path": "m", "stop": ("a", "b")}),
        system=SystemSettings(**system),
        gateway_workers=2,
    )


@pytest.fixture
def marked() -> Iterator[str]:
    ids.mark(ids.gateway_mark(7))
    yield ids.gateway_mark(7)
    ids.mark("")


def test_ids_of_one_gateway_share_a_beginning_that_no_other_id_has(marked: str) -> None:
    own = ids.new_request_id()
    assert own.startswith(marked)
    assert len(own) == ids.ID_LENGTH == len(ids.new_probe_id())
    assert not ids.new_probe_id().startswith(marked), "a probe is told by its own beginning"
    marks = [ids.gateway_mark(index) for index in range(64)]
    assert not [a for a in marks for b in marks if a != b and a.startswith(b)]
    assert not set("g-") <= set("0123456789abcdef"), "no plain id begins so"


@pytest.mark.parametrize(
    ("system", "ports"),
    [
        ({}, ["-1", "-1"]),
        ({"port": 9000}, ["0", "0"]),
        ({"port": 9000, "metadata_port": 9100}, ["9100", "9101"]),
    ],
)
def test_each_gateway_s_runtime_has_a_port_of_its_own(
    system: dict[str, int], ports: list[str]
) -> None:
    found = [own_variables(config(**system), index)["DYN_SYSTEM_PORT"] for index in (0, 1)]
    assert found == ports


def test_a_gateway_gets_what_the_engine_s_start_has_set_and_keeps_its_own() -> None:
    then = {"A": "1", "B": "1", "DYN_SYSTEM_PORT": "0"}
    now = {"A": "1", "B": "2", "C": "3", "DYN_SYSTEM_PORT": "9"}
    assert changed(now, then, {"DYN_SYSTEM_PORT": "0"}) == {"B": "2", "C": "3"}


def test_a_plan_arrives_whole_and_an_ended_pair_is_none() -> None:
    plan = wire.Plan(
        index=1,
        owner_pid=7,
        config=config(port=9000),
        environ={"A": "b"},
        runners=[{"runner": "target"}],
        started_in_s=1.5,
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(wire.frame(plan))
        assert wire.read_plan(theirs) == plan
        ours.close()
        assert wire.read_plan(theirs) is None


def test_reports_come_one_by_one_until_the_pair_ends() -> None:
    first, second = (wire.Report(WorkerState(worker_id=str(one)), one) for one in (1, 2))

    async def read() -> list[bytes | None]:
        reader = asyncio.StreamReader()
        reader.feed_data(wire.frame(first) + wire.frame(second) + b"\0\0")
        reader.feed_eof()
        return [await wire.read_frame(reader) for _ in range(3)]

    *frames, end = asyncio.run(read())
    assert [msgspec.json.decode(one or b"", type=wire.Report) for one in frames] == [first, second]
    assert end is None


def test_what_changes_weights_memory_or_generation_is_refused_by_name() -> None:
    shared = NoLifecycle()
    allowed = {one.name for one in OPERATIONS if shared.guard(one.name) is None}
    assert allowed == {"start_profile", "stop_profile", "flush_cache"}

    async def ask() -> list[tuple[int, str]]:
        answers = [
            await shared.pause({}),
            await shared.continue_({}),
            await shared.release({}),
            await shared.resume_memory({}),
        ]
        return [(one.status, one.body["error"].split()[0]) for one in answers]

    assert asyncio.run(ask()) == [(409, role.value) for role in LIFECYCLE_ROUTES]
