from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_worker.system.loras import LoraRefused
from sglang_worker.workers.loras import LoraAdapters


class Engine:
    """The engine's side and discovery's side, in the order of their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: set[str] = set()

    def _answer(self, call: str) -> Any:
        self.calls.append(call)
        return SimpleNamespace(success=call not in self.fails, error_message="no")

    async def load_lora(self, name: str, path: str) -> Any:
        return self._answer(f"load {name}")

    async def unload_lora(self, name: str) -> Any:
        return self._answer(f"unload {name}")

    async def publish(self, name: str) -> None:
        if not self._answer(f"publish {name}").success:
            raise ConnectionError("no")

    async def withdraw(self, name: str) -> None:
        if not self._answer(f"withdraw {name}").success:
            raise ConnectionError("no")


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def loras(engine: Engine) -> LoraAdapters:
    made: Any = engine
    return LoraAdapters(made, engine.publish, engine.withdraw, enabled=True)


async def test_an_adapter_is_in_the_engine_before_anyone_can_ask_for_it(
    engine: Engine, loras: LoraAdapters, tmp_path: Path
) -> None:
    lora_id, _ = await loras.load("a", str(tmp_path))
    assert engine.calls == ["load a", "publish a"]
    assert loras.loaded() == {"a": lora_id}
    assert loras.names() == {"a"}


async def test_loading_a_loaded_adapter_changes_nothing(
    engine: Engine, loras: LoraAdapters, tmp_path: Path
) -> None:
    first = await loras.load("a", str(tmp_path))
    again = await loras.load("a", str(tmp_path))
    assert first[0] == again[0]
    assert len(engine.calls) == 2


async def test_nobody_can_ask_for_an_adapter_before_it_leaves_the_engine(
    engine: Engine, loras: LoraAdapters, tmp_path: Path
) -> None:
    await loras.load("a", str(tmp_path))
    engine.calls.clear()
    await loras.unload("a")
    assert engine.calls == ["withdraw a", "unload a"]
    assert loras.loaded() == {}


async def test_a_failed_registration_takes_the_adapter_out_again(
    engine: Engine, loras: LoraAdapters, tmp_path: Path
) -> None:
    engine.fails = {"publish a"}
    with pytest.raises(LoraRefused) as caught:
        await loras.load("a", str(tmp_path))
    assert caught.value.status == 503
    assert engine.calls == ["load a", "publish a", "unload a"]
    assert loras.names() == frozenset()


async def test_an_adapter_that_the_engine_keeps_stays_advertised(
    engine: Engine, loras: LoraAdapters, tmp_path: Path
) -> None:
    await loras.load("a", str(tmp_path))
    engine.fails = {"unload a"}
    with pytest.raises(LoraRefused):
        await loras.unload("a")
    assert engine.calls[-1] == "publish a"
    assert loras.names() == {"a"}


async def test_a_failed_withdrawal_leaves_everything_as_it_was(
    engine: Engine, loras: LoraAdapters, tmp_path: Path
) -> None:
    await loras.load("a", str(tmp_path))
    engine.fails = {"withdraw a"}
    with pytest.raises(LoraRefused) as caught:
        await loras.unload("a")
    assert caught.value.status == 503
    assert loras.names() == {"a"}
    assert "unload a" not in engine.calls


@pytest.mark.parametrize("uri", ["/no/such/folder", "file:///no/such/folder", "s3://b/a"])
async def test_a_source_that_cannot_be_read_is_refused_before_the_engine_is_asked(
    engine: Engine, loras: LoraAdapters, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DYN_LORA_ENABLED", raising=False)
    with pytest.raises(LoraRefused, match=r"source\.uri") as caught:
        await loras.load("a", uri)
    assert caught.value.status == 400
    assert engine.calls == []


async def test_an_unknown_adapter_is_not_found_and_the_known_ones_are_named(
    loras: LoraAdapters, tmp_path: Path
) -> None:
    await loras.load("a", str(tmp_path))
    with pytest.raises(LoraRefused, match="loaded: a") as caught:
        await loras.unload("b")
    assert caught.value.status == 404


async def test_a_worker_without_adapters_says_so(engine: Engine, tmp_path: Path) -> None:
    made: Any = engine
    loras = LoraAdapters(made, engine.publish, engine.withdraw, enabled=False)
    with pytest.raises(LoraRefused, match="--enable-lora"):
        await loras.load("a", str(tmp_path))


async def test_adapters_of_the_start_are_advertised_with_the_model(engine: Engine) -> None:
    made: Any = engine
    loras = LoraAdapters(
        made, engine.publish, engine.withdraw, enabled=True, at_start={"a": "/a", "b": "/b"}
    )
    await loras.publish_loaded()
    assert engine.calls == ["publish a", "publish b"]


async def test_the_runtimes_endpoints_answer_in_its_own_form(
    loras: LoraAdapters, tmp_path: Path
) -> None:
    async def only(answers: Any) -> dict[str, Any]:
        (answer,) = [one async for one in answers]
        assert isinstance(answer, dict)
        return answer

    body = {"lora_name": "a", "source": {"uri": str(tmp_path)}}
    assert (await only(loras.serve_load(body, None)))["status"] == "success"
    assert (await only(loras.serve_load({"lora_name": "a"}, None)))["status"] == "error"
    assert (await only(loras.serve_list(None, None)))["count"] == 1
    assert (await only(loras.serve_unload({"lora_name": "a"}, None)))["status"] == "success"
    assert (await only(loras.serve_unload({"lora_name": "a"}, None)))["status"] == "error"
    assert (await only(loras.serve_unload(None, None)))["status"] == "error"
