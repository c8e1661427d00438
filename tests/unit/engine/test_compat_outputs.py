"""Who reads SGLang's text, and how schedulers learn that nobody does."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    ModelSettings,
    SystemSettings,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.engine import compat_outputs
from sglang_worker.engine.compat_outputs import VARIABLE, reader_of_text, sent_directly
from sglang_worker.system.grammar import parse_descriptors

PLAIN = WorkerConfig(
    WorkerType.AGGREGATED, EndpointAddress("dynamo", "backend", "generate"), EngineFlags()
)


def with_routes(*texts: str) -> WorkerConfig:
    return msgspec.structs.replace(PLAIN, system=SystemSettings(routes=parse_descriptors(texts)))


@pytest.mark.parametrize(
    ("config", "args", "reader"),
    [
        (PLAIN, {}, None),
        (PLAIN, {"log_requests": False}, None),
        (PLAIN, {"log_requests": True}, "--log-requests"),
        (
            msgspec.structs.replace(PLAIN, model=ModelSettings(use_sglang_tokenizer=True)),
            {},
            "--use-sglang-tokenizer",
        ),
        (msgspec.structs.replace(PLAIN, gateway_workers=2), {}, "--gateway-workers"),
        (PLAIN, {"crash_dump_folder": "dumps"}, "--crash-dump-folder"),
        (PLAIN, {"node_rank": 0}, None),
        (PLAIN, {"node_rank": 1}, "--node-rank"),
        (with_routes("ask=generate"), {}, "--engine-route ask=generate"),
        (with_routes("generate"), {}, "--engine-route generate"),
        (with_routes("ask=async_generate"), {}, "--engine-route ask=async_generate"),
        (with_routes("ask=generate_request:tm"), {}, "--engine-route ask=generate_request:tm"),
        (
            with_routes("logs=configure_logging:tm"),
            {},
            "--engine-route logs=configure_logging:tm",
        ),
        (with_routes("flush_cache", "pause=pause_generation:tm"), {}, None),
    ],
)
def test_text_is_made_only_for_whom_it_reaches(
    config: WorkerConfig, args: dict[str, Any], reader: str | None
) -> None:
    assert reader_of_text(config, SimpleNamespace(**args)) == reader


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("before", [None, "1"])
def test_only_schedulers_that_start_inside_are_told(
    wanted: bool, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    with pytest.raises(ZeroDivisionError), sent_directly(wanted):
        assert bool(os.environ.get(VARIABLE)) is wanted
        _ = 1 / 0
    assert os.environ.get(VARIABLE) == before


class Channels:
    @classmethod
    def create(cls, *, port_args: str, skip_tokenizer_init: bool) -> tuple[str, bool]:
        return port_args, skip_tokenizer_init


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> Any:
    copy = type("Channels", (Channels,), {})
    monkeypatch.setattr(compat_outputs, "_channels", lambda: copy)
    return copy


def test_a_scheduler_that_was_told_sends_past_the_detokenizer(
    channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    assert compat_outputs.install()
    assert channels.create(port_args="ports", skip_tokenizer_init=False) == ("ports", True)


def test_a_scheduler_that_was_not_told_is_left_as_it_is(
    channels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert not compat_outputs.install()
    assert channels.create(port_args="ports", skip_tokenizer_init=False) == ("ports", False)


def test_an_sglang_without_the_shorter_way_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(compat_outputs, "_channels", lambda: None)
    assert not compat_outputs.install()


def test_this_sglang_has_the_shorter_way() -> None:
    assert compat_outputs._channels() is not None


def plain_manager() -> Any:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    return TokenizerManager.__new__(TokenizerManager)


def manager() -> Any:
    made = plain_manager()
    compat_outputs.join_alike(made)
    return made


def output(*ids: int, **more: Any) -> dict[str, Any]:
    return {"output_ids": list(ids), "meta_info": {"finish_reason": None}, **more}


def test_an_abort_behind_outputs_that_nobody_asked_for_yet_reaches_its_stream() -> None:
    """SGLang writes text into the aborts that it makes itself, such as at an engine's death."""
    abort = {"text": "", "output_ids": [], "meta_info": {"finish_reason": {"type": "abort"}}}
    joined = manager()._coalesce_streaming_chunks([output(1), output(2), abort], "one", {}.keys())
    assert joined["output_ids"] == [1, 2]
    assert joined["meta_info"]["finish_reason"] == {"type": "abort"}


def test_text_that_was_made_is_joined_as_before() -> None:
    outputs = [output(1, text="a"), output(2, text="b")]
    assert manager()._coalesce_streaming_chunks(outputs, "one", {}.keys())["text"] == "ab"


@pytest.mark.parametrize("count", [19, 20, 37, 38, 100])
def test_many_outputs_are_joined_as_sglang_joins_them_but_quietly(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    outputs = []
    for number in range(count):
        one = output(number)
        one["meta_info"] |= {"completion_tokens": number + 1, "output_token_logprobs": [number]}
        outputs.append(one)
    caplog.set_level("WARNING")
    joined = manager()._coalesce_streaming_chunks(outputs, "one", {}.keys())
    assert not caplog.records
    assert joined == plain_manager()._coalesce_streaming_chunks(outputs, "one", {}.keys())
    assert joined["output_ids"] == joined["meta_info"]["output_token_logprobs"] == [*range(count)]
