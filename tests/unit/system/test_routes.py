from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.system.app import EngineRequest
from sglang_worker.system.binding import bind
from sglang_worker.system.bridge import SyncBridge
from sglang_worker.system.builtin import lifecycle_routes, server_info_route
from sglang_worker.system.configured import configured_routes
from sglang_worker.system.control import control_routes
from sglang_worker.system.grammar import parse_descriptors
from sglang_worker.system.loras import LoraRefused, lora_routes
from sglang_worker.system.routes import Route, RouteTable
from sglang_worker.system.state import Access, RouteSpec

from .toy_engine import ToyEngine, ToyManager
from .toy_info import ToyInfo, info_of
from .toy_routes import FACTS, LIMITS, Answer, Req, ToyCalls, ToyLifecycle, ask


@pytest.fixture
async def engine() -> AsyncIterator[ToyEngine]:
    toy = ToyEngine(ToyManager())
    original = toy.loop
    yield toy
    original.close()


def configured(
    engine: ToyEngine, lifecycle: ToyLifecycle, *texts: str, refusal: str | None = None
) -> list[Route]:
    methods = bind(parse_descriptors(texts), engine, engine.tokenizer_manager)
    return configured_routes(
        methods, SyncBridge(engine), lifecycle, LIMITS, FACTS, lambda _: refusal
    )


def control(calls: ToyCalls, lifecycle: ToyLifecycle, refusal: str | None = None) -> list[Route]:
    return control_routes(calls, lifecycle, lambda _: refusal, lambda _: Req, LIMITS, FACTS)


async def test_a_configured_route_answers_200_with_the_result(engine: ToyEngine) -> None:
    routes = configured(engine, ToyLifecycle(), "flush_cache", "refuses", "x=init_group")
    assert await ask(routes, "/engine/flush_cache") == (200, {"result": "flushed"})
    # A failure value is the method's result, and stays as it is.
    assert await ask(routes, "/engine/refuses") == (200, {"success": False, "message": "not now"})
    body = {"address": "h", "port": 1}
    assert await ask(routes, "/engine/x", body) == (200, {"success": True, "message": "h:1:nccl"})


async def test_an_exception_of_the_method_is_500_with_its_message(engine: ToyEngine) -> None:
    routes = configured(engine, ToyLifecycle(), "fails")
    assert await ask(routes, "/engine/fails") == (500, {"error": "RuntimeError: engine said no"})


async def test_secrets_are_redacted_whatever_the_alias(engine: ToyEngine) -> None:
    routes = configured(engine, ToyLifecycle(), "info=get_server_info", "s=state:tm")
    for path in ("/engine/info", "/engine/s"):
        status, value = await ask(routes, path)
        assert status == 200
        assert "very-secret" not in json.dumps(value)


async def test_pause_by_a_configured_route_goes_through_the_lifecycle(engine: ToyEngine) -> None:
    lifecycle = ToyLifecycle()
    routes = configured(engine, lifecycle, "pause_generation:tm", "stop/it=pause_generation:tm")
    path = "/engine/stop/it"
    assert await ask(routes, path, {"mode": "in_place"}) == (200, {"status": "ok"})
    assert lifecycle.asked == [("pause", {"mode": "in_place"})]
    assert engine.tokenizer_manager.calls == []
    lifecycle.answer = Answer(409, {"state": "draining", "error": "Resume first."})
    assert (await ask(routes, path))[0] == 409
    assert (await ask(routes, path, {"mode": "bogus"}))[0] == 400


async def test_released_memory_is_not_written_to_or_run_on_under_any_path(
    engine: ToyEngine,
) -> None:
    names = ("w=update_weights_from_disk", "g=encode", "flush_cache")
    routes = configured(engine, ToyLifecycle(), *names, refusal="Memory is released.")
    for path in ("/engine/w", "/engine/g"):
        assert await ask(routes, path) == (409, {"error": "Memory is released."})
    assert (await ask(routes, "/engine/flush_cache"))[0] == 200


async def test_server_info_is_built_in_and_not_configured_twice(engine: ToyEngine) -> None:
    assert configured(engine, ToyLifecycle(), "server_info=get_server_info") == []


@pytest.mark.parametrize("name", ["update_weights_from_tensor", "update_weights_from_ipc"])
async def test_routes_that_unpickle_are_marked_and_take_large_bodies(name: str) -> None:
    routes = {one.spec.path: one.spec for one in control(ToyCalls(), ToyLifecycle())}
    spec = routes[f"/engine/control/{name}"]
    assert spec.access is Access.UNPICKLES
    assert spec.body_limit_bytes == 1000
    assert routes["/engine/control/flush_cache"].body_limit_bytes == 100


async def test_all_fixed_control_routes_exist() -> None:
    paths = {one.spec.path.rpartition("/")[2] for one in control(ToyCalls(), ToyLifecycle())}
    assert paths == {
        "start_profile",
        "stop_profile",
        "release_memory_occupation",
        "resume_memory_occupation",
        "update_weights_from_disk",
        "update_weights_from_tensor",
        "update_weights_from_distributed",
        "update_weights_from_ipc",
        "update_weight_version",
        "flush_cache",
        "pause_generation",
        "continue_generation",
    }


async def test_an_engine_failure_on_a_control_route_is_never_200() -> None:
    calls = ToyCalls()
    routes = control(calls, ToyLifecycle())
    path = "/engine/control/update_weights_from_disk"
    calls.result = (False, "no such path", 0)
    status, value = await ask(routes, path)
    assert (status, value["error"], value["success"]) == (400, "no such path", False)
    calls.error = RuntimeError("scheduler said no")
    assert await ask(routes, path) == (500, {"error": "scheduler said no"})
    calls.error = ValueError("bad value")
    assert await ask(routes, path) == (400, {"error": "bad value"})


async def test_a_weight_version_aborts_nothing_unless_asked() -> None:
    calls = ToyCalls()
    routes = control(calls, ToyLifecycle())
    path = "/engine/control/update_weight_version"
    status, value = await ask(routes, path, {"new_version": "2"})
    assert (status, value["new_version"]) == (200, "2")
    await ask(routes, path, {"new_version": "3", "abort_all_requests": True})
    assert [body["abort_all_requests"] for _, body in calls.called] == [False, True]


async def test_control_routes_refuse_fields_that_are_not_theirs() -> None:
    calls = ToyCalls()
    routes = control(calls, ToyLifecycle())
    for name, field in (
        ("flush_cache", "x"),
        ("start_profile", "req_type"),
        ("update_weights_from_disk", "rid"),
        ("update_weights_from_disk", "http_worker_ipc"),
        ("pause_generation", "bogus"),
    ):
        status, value = await ask(routes, f"/engine/control/{name}", {field: "1"})
        assert (status, value) == (400, {"error": f"unknown field {field!r}"})
    assert calls.called == []


@pytest.mark.parametrize(
    ("name", "body", "named"),
    [
        ("update_weights_from_disk", {"load_format": "bogus"}, "load_format"),
        ("update_weights_from_tensor", {"serialized_named_tensors": []}, "expected 1 payloads"),
        (
            "update_weights_from_tensor",
            {"serialized_named_tensors": ["aGVsbG8="]},
            "no serialized tensors",
        ),
        ("start_profile", {"activities": ["MEM"]}, "cannot be recorded here"),
    ],
)
async def test_values_that_would_end_the_scheduler_are_refused(
    name: str, body: dict[str, Any], named: str
) -> None:
    calls = ToyCalls()
    status, value = await ask(control(calls, ToyLifecycle()), f"/engine/control/{name}", body)
    assert status == 400
    assert named in value["error"]
    assert calls.called == []


async def test_what_sglang_refuses_to_profile_is_a_conflict() -> None:
    calls = ToyCalls()
    calls.error = RuntimeError("Profiling is already in progress")
    answer = await ask(control(calls, ToyLifecycle()), "/engine/control/start_profile")
    assert answer == (409, {"error": "Profiling is already in progress"})


@pytest.mark.parametrize("name", ["update_weights_from_disk", "flush_cache", "pause_generation"])
async def test_what_is_refused_now_is_a_conflict_whatever_the_body(name: str) -> None:
    calls, lifecycle = ToyCalls(), ToyLifecycle()
    path, body = f"/engine/control/{name}", {"bogus": 1}
    refused = await ask(control(calls, lifecycle, "Not with gateways."), path, body)
    assert refused == (409, {"error": "Not with gateways."})
    assert (await ask(control(calls, lifecycle), path, body))[0] == 400
    assert calls.called == []


async def test_a_configured_call_that_is_refused_now_is_a_conflict_whatever_the_body(
    engine: ToyEngine,
) -> None:
    routes = configured(engine, ToyLifecycle(), "w=update_weights_from_disk", refusal="Not now.")
    assert await ask(routes, "/engine/w", {"bogus": 1}) == (409, {"error": "Not now."})


async def test_control_calls_run_one_at_a_time() -> None:
    calls = ToyCalls()
    routes = control(calls, ToyLifecycle())
    paths = ["flush_cache", "stop_profile", "update_weight_version"] * 3
    await asyncio.gather(*(ask(routes, f"/engine/control/{path}") for path in paths))
    assert calls.most == 1


async def test_the_lifecycle_may_forbid_an_engine_call() -> None:
    routes = control(ToyCalls(), ToyLifecycle(), "The weights are released.")
    answer = await ask(routes, "/engine/control/update_weights_from_disk")
    assert answer == (409, {"error": "The weights are released."})


async def test_drain_and_resume_take_no_body() -> None:
    lifecycle = ToyLifecycle()
    routes = lifecycle_routes(lifecycle)
    for name in ("drain", "resume"):
        for empty in (b"", b"{}"):
            status, value = await ask(routes, f"/engine/{name}", empty)
            assert (status, value) == (200, lifecycle.answer.body)
        assert (await ask(routes, f"/engine/{name}", {"force": True}))[0] == 400
        assert (await ask(routes, f"/engine/{name}", b"[]"))[0] == 400
    assert len(lifecycle.asked) == 4


class ToyLoras:
    def __init__(self) -> None:
        self.adapters: dict[str, int] = {}

    def loaded(self) -> dict[str, int]:
        return dict(self.adapters)

    async def load(self, name: str, uri: str) -> tuple[int, str]:
        if not uri.startswith("file://"):
            raise LoraRefused(400, f"cannot fetch {uri}")
        self.adapters[name] = 5
        return 5, f"LoRA adapter '{name}' loaded successfully"

    async def unload(self, name: str) -> int:
        if name not in self.adapters:
            raise LoraRefused(404, f"LoRA adapter '{name}' not found")
        return self.adapters.pop(name)


async def test_loras_are_loaded_listed_and_unloaded_like_the_runtimes_own_routes() -> None:
    routes = lora_routes(ToyLoras())
    body = {"lora_name": "org/my lora", "source": {"uri": "file:///x"}}
    assert await ask(routes, "/v1/loras", body) == (
        200,
        {
            "status": "success",
            "message": "LoRA adapter 'org/my lora' loaded successfully",
            "lora_name": "org/my lora",
            "lora_id": 5,
        },
    )
    listed = await ask(routes, "/v1/loras", method="GET")
    assert listed == (200, {"status": "success", "loras": {"org/my lora": 5}, "count": 1})
    assert (await ask(routes, "/v1/loras/org/my%20lora", method="DELETE"))[0] == 200
    assert (await ask(routes, "/v1/loras/org/my%20lora", method="DELETE"))[0] == 404
    assert (await ask(routes, "/v1/loras/%ff", method="DELETE"))[0] == 400
    for wrong in ({}, {"lora_name": "x"}, {"lora_name": "x", "source": {}}, {**body, "y": 1}):
        assert (await ask(routes, "/v1/loras", wrong))[0] == 400
    refused = await ask(routes, "/v1/loras", {"lora_name": "x", "source": {"uri": "s3://b"}})
    assert (refused[0], refused[1]["error"]) == (400, "cannot fetch s3://b")


async def test_state_changing_calls_are_audited_without_their_bodies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sglang_worker.audit")
    await ask(control(ToyCalls(), ToyLifecycle()), "/engine/control/flush_cache", {"pw": "hunter2"})
    (line,) = [r.getMessage() for r in caplog.records if r.name == "sglang_worker.audit"]
    assert "method=POST path='/engine/control/flush_cache' remote=127.0.0.1 status=400" in line
    assert "hunter2" not in line


async def test_reading_is_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sglang_worker.audit")
    info = info_of(ToyInfo())
    await ask([server_info_route(info)], "/engine/server_info", method="GET")
    assert not [r for r in caplog.records if r.name == "sglang_worker.audit"]


async def test_listing_loras_is_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sglang_worker.audit")
    await ask(lora_routes(ToyLoras()), "/v1/loras", method="GET")
    assert not [r for r in caplog.records if r.name == "sglang_worker.audit"]


async def test_two_routes_cannot_claim_one_path() -> None:
    async def handler(_call: Any) -> Any: ...

    route = Route(spec=RouteSpec(path="/engine/x", methods=("POST",)), handler=handler)
    with pytest.raises(ConfigError, match="two routes claim /engine/x"):
        RouteTable([route, route])


async def test_the_openapi_document_describes_every_route() -> None:
    routes = [*control(ToyCalls(), ToyLifecycle()), *lora_routes(ToyLoras())]
    document = RouteTable(routes).catalog().openapi
    assert document["openapi"] == "3.1.0"
    assert {"/live", "/engine", "/engine/control/flush_cache", "/v1/loras/{name}"} <= set(
        document["paths"]
    )
    ids = [
        operation["operationId"]
        for item in document["paths"].values()
        for operation in item.values()
        if isinstance(operation, dict)
    ]
    assert len(ids) == len(set(ids))


async def test_answers_are_counted_by_route_never_by_a_path_that_a_caller_made_up(
    engine: ToyEngine,
) -> None:
    table = RouteTable(configured(engine, ToyLifecycle(), "flush_cache"))
    for path in ("/engine/flush_cache", "/engine/made/up", "/engine/other"):
        await table.handle(EngineRequest(method="POST", path=path, body=b"", remote="127.0.0.1"))
    table.refused("POST", "/engine/flush_cache", "127.0.0.1", 401)
    assert table.answered == {
        ("/engine/flush_cache", 200): 1,
        ("/engine/flush_cache", 401): 1,
        ("unknown", 404): 2,
    }
