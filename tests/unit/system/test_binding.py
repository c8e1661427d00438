from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.system.binding import BoundMethod, bind, resolve_against_classes
from sglang_worker.system.bridge import SyncBridge
from sglang_worker.system.faults import BadRequest
from sglang_worker.system.grammar import parse_descriptors

from .toy_engine import Kind, LoadReq, PauseReq, ToyEngine, ToyManager, UpdateReq


def bound(text: str, engine: ToyEngine) -> BoundMethod:
    (method,) = bind(parse_descriptors([text]), engine, engine.tokenizer_manager)
    return method


@pytest.fixture
async def engine() -> AsyncIterator[ToyEngine]:
    toy = ToyEngine(ToyManager())
    original = toy.loop
    yield toy
    original.close()


async def invoke(text: str, engine: ToyEngine, body: dict[str, Any] | None = None) -> Any:
    return await bound(text, engine).invoke(body or {}, SyncBridge(engine))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("missing", "has no method 'missing'"),
        ("missing:tm", "has no method 'missing'"),
        ("size", "is not callable"),
        ("busy:tm", "is not callable"),
        ("communicator:tm", "has no method"),
        ("stream:tm", "streams its results"),
        ("generate", "streams its results"),
        ("two:tm", "several request objects: first, second"),
        ("more:tm", "needs count besides"),
        ("positional", "cannot be given by name"),
    ],
)
def test_what_cannot_be_a_route_fails_startup_naming_the_descriptor(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_against_classes(parse_descriptors([text]), ToyEngine, ToyManager)
    assert repr(text) in str(caught.value)
    assert reason in str(caught.value)


async def test_what_the_classes_accept_the_running_engine_accepts(engine: ToyEngine) -> None:
    texts = ["flush_cache", "pause_generation:tm", "x=plain", "update:tm", "abort:tm"]
    descriptors = parse_descriptors(texts)
    by_class = resolve_against_classes(descriptors, ToyEngine, ToyManager)
    by_engine = bind(descriptors, engine, engine.tokenizer_manager)
    assert [one.target_name for one in by_class] == [one.resolved.target_name for one in by_engine]


async def test_json_keys_become_keyword_arguments(engine: ToyEngine) -> None:
    result = await invoke("init_group", engine, {"address": "h", "port": 1, "backend": "gloo"})
    assert result == (True, "h:1:gloo")
    assert await invoke("plain", engine, {"text": "t"}) == "t"
    assert await invoke("anything", engine, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"address": "h"}, "missing keyword 'port'"),
        ({"address": "h", "port": 1, "extra": 2}, "unknown keyword 'extra'"),
        ({"address": "h", "port": "1"}, "keyword port: expected an integer, not a string"),
        ({"address": None, "port": 1}, "keyword address"),
        ({"self": 1, "address": "h", "port": 1}, "unknown keyword 'self'"),
    ],
)
async def test_a_keyword_mismatch_is_a_bad_request_naming_it(
    engine: ToyEngine, body: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRequest, match=named):
        await invoke("init_group", engine, body)


async def test_a_typed_request_is_built_from_the_body(engine: ToyEngine) -> None:
    body = {
        "names": ["w"],
        "shapes": [[1, 2]],
        "scale": 2,
        "blob": ["aGk="],
        "kind": "part",
        "limits": {"a": 1},
    }
    assert await invoke("update:tm", engine, body) == (True, "updated")
    (request,) = engine.tokenizer_manager.calls
    assert request == UpdateReq(
        names=["w"], shapes=[[1, 2]], scale=2.0, blob=[b"hi"], kind=Kind.PART, limits={"a": 1}
    )
    await invoke("pause_generation:tm", engine)
    assert engine.tokenizer_manager.calls[-1] == PauseReq()
    await invoke("load:tm", engine, {"lora_name": "x", "pinned": True})
    assert engine.tokenizer_manager.calls[-1] == LoadReq("x", True)


@pytest.mark.parametrize(
    ("text", "body", "named"),
    [
        ("update:tm", {}, "missing field 'names'; missing field 'shapes'"),
        ("update:tm", {"names": "w", "shapes": []}, "field names: expected an array"),
        ("update:tm", {"names": [1], "shapes": []}, r"field names\[0\]: expected a string"),
        ("update:tm", {"names": [], "shapes": [[1.5]]}, r"field shapes\[0\]\[0\]"),
        ("update:tm", {"names": [], "shapes": [[True]]}, r"field shapes\[0\]\[0\]"),
        ("update:tm", {"names": [], "shapes": [], "blob": ["%"]}, r"blob\[0\]: expected valid"),
        ("update:tm", {"names": [], "shapes": [], "kind": "no"}, "one of 'full', 'part'"),
        ("update:tm", {"names": [], "shapes": [], "limits": {"a": "b"}}, "limits"),
        ("pause_generation:tm", {"mode": "stop"}, "one of 'abort', 'in_place'"),
        ("pause_generation:tm", {"bogus": 1}, "unknown field 'bogus'"),
        ("pause_generation:tm", {"http_worker_ipc": "x"}, "unknown field 'http_worker_ipc'"),
        ("load:tm", {"lora_name": ""}, "lora_name is empty"),
    ],
)
async def test_a_wrong_typed_request_is_a_bad_request_naming_the_field(
    engine: ToyEngine, text: str, body: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRequest, match=named):
        await invoke(text, engine, body)
    assert engine.tokenizer_manager.calls == []


async def test_sync_wrappers_run_on_the_owner_loop_one_at_a_time(engine: ToyEngine) -> None:
    bridge = SyncBridge(engine)
    flush = bound("flush_cache", engine)
    results = await asyncio.gather(*(flush.invoke({}, bridge) for _ in range(4)))
    assert results == ["flushed"] * 4
    assert engine.most == 1
    assert set(engine.threads) == {threading.get_ident()}


async def test_a_sync_tokenizer_manager_method_stays_on_the_loop(engine: ToyEngine) -> None:
    await invoke("abort:tm", engine, {"rid": "a"})
    assert engine.tokenizer_manager.calls == [("a", False, threading.get_ident())]


async def test_async_engine_methods_are_awaited(engine: ToyEngine) -> None:
    assert await invoke("async_thing", engine, {"n": 1}) == 2


async def test_a_sync_wrapper_called_on_the_loop_is_refused_instead_of_hanging(
    engine: ToyEngine,
) -> None:
    SyncBridge(engine)
    with pytest.raises(RuntimeError, match="on the worker's event loop"):
        engine.flush_cache()


async def test_an_exception_of_the_method_reaches_the_caller(engine: ToyEngine) -> None:
    with pytest.raises(RuntimeError, match="engine said no"):
        await invoke("fails", engine)


async def test_a_result_that_turns_out_to_stream_is_refused(engine: ToyEngine) -> None:
    assert await invoke("maybe_streams", engine) == "whole"
    with pytest.raises(BadRequest, match="streams this result"):
        await invoke("maybe_streams", engine, {"stream": True})
