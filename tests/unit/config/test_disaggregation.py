"""What prefill and decode workers get besides their flags, and what is refused on them."""

from __future__ import annotations

import pytest
from sglang_worker.config.server_args import disaggregation_defaults, overrides
from sglang_worker.engine import compat_disagg
from sglang_worker.errors import ConfigError

from tests.unit.config.support import late_refusal, parse

PREFILL = ("--disaggregation-mode", "prefill")


def test_a_prefill_worker_listens_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_HOST_IP", "10.1.2.3")
    assert disaggregation_defaults(parse(*PREFILL)) == {"host": "0.0.0.0"}
    monkeypatch.setenv("SGLANG_HOST_IP", "[fd00::7]")
    assert disaggregation_defaults(parse(*PREFILL)) == {"host": "::"}


def test_the_operators_own_interface_wins() -> None:
    config = parse(*PREFILL, "--host", "10.9.9.9")
    assert overrides(config, {"host": "0.0.0.0"})["host"] == "10.9.9.9"


@pytest.mark.parametrize("flags", [(), ("--disaggregation-mode", "decode")])
def test_other_workers_listen_for_nobody(flags: tuple[str, ...]) -> None:
    assert disaggregation_defaults(parse(*flags)) == {}


def test_a_machine_without_an_address_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise ValueError("Can not get local ip")

    monkeypatch.setattr(compat_disagg, "local_address", none)
    with pytest.raises(ConfigError, match="set SGLANG_HOST_IP"):
        disaggregation_defaults(parse(*PREFILL))


@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_text_for_the_engine_and_a_remote_prefill_exclude_each_other(mode: str) -> None:
    text = late_refusal("--use-sglang-tokenizer", "--disaggregation-mode", mode)
    assert "--use-sglang-tokenizer" in text and f"--disaggregation-mode {mode}" in text


def test_the_installed_sglang_hands_over_as_many_alternatives_as_requests_may_ask_for() -> None:
    assert compat_disagg.handover_logprobs() == 128
