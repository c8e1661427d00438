from __future__ import annotations

import importlib.util

import pytest
from sglang_worker.config import log_rules
from sglang_worker.errors import ConfigError


def test_a_request_log_holds_no_prompts_unless_asked_for_by_level() -> None:
    assert log_rules.log_defaults({"log_requests": True}) == {"log_requests_level": 1}
    assert log_rules.log_defaults({"log_requests": True, "log_requests_level": 3}) == {}
    assert log_rules.log_defaults({}) == {}


@pytest.mark.parametrize(("level", "told"), [(None, False), (0, False), (1, False), (2, True)])
def test_a_level_that_logs_prompts_is_told(level: int | None, told: bool) -> None:
    notices = log_rules.log_notices({"log_requests": True, "log_requests_level": level})
    assert bool(notices) is told
    assert log_rules.log_notices({"log_requests_level": 3}) == []


def test_tracing_without_its_packages_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    log_rules.check_tracing({})
    with pytest.raises(ConfigError, match=r"--enable-trace.*opentelemetry\.sdk"):
        log_rules.check_tracing({"enable_trace": True})


def test_tracing_with_its_packages_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    log_rules.check_tracing({"enable_trace": True})
