"""The rule that decides whether the CPU reference platform is active."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.reference_platform import activation
from sglang_worker.reference_platform.activation import (
    ENTRY_POINT_NAME,
    PLATFORM_CLASS,
    VARIABLE,
    Signs,
    decide,
)

PLAIN = Signs()


def test_a_plain_machine_gets_the_platform() -> None:
    assert decide({}, PLAIN).active


@pytest.mark.parametrize(
    "signs",
    [
        Signs(device_nodes=("/dev/nvidia0",)),
        Signs(device_nodes=("/dev/nvidiactl",)),
        Signs(device_nodes=("/dev/kfd",)),
        Signs(device_nodes=("/dev/dri",)),
        Signs(kernel_distributions=("flashinfer-python",)),
        Signs(kernel_distributions=("sglang-kernel",)),
        Signs(other_platforms=("somebodys_npu",)),
    ],
)
def test_any_sign_of_an_accelerator_keeps_it_off_and_is_named(signs: Signs) -> None:
    decision = decide({}, signs)
    assert not decision.active
    (named,) = signs.device_nodes + signs.kernel_distributions + signs.other_platforms
    assert named in decision.reason


@pytest.mark.parametrize(
    "environ",
    [
        {"NVIDIA_VISIBLE_DEVICES": "all"},
        {"NVIDIA_VISIBLE_DEVICES": "0,1"},
        {"SGLANG_USE_CPU_ENGINE": "1"},
        {"SGLANG_PLATFORM": "somebodys_npu"},
    ],
)
def test_a_variable_that_hints_at_another_device_keeps_it_off(environ: dict[str, str]) -> None:
    decision = decide(environ, PLAIN)
    assert not decision.active
    assert next(iter(environ)) in decision.reason


@pytest.mark.parametrize("value", ["void", "none", "NONE", ""])
def test_nvidia_visible_devices_may_say_that_there_are_none(value: str) -> None:
    assert decide({"NVIDIA_VISIBLE_DEVICES": value}, PLAIN).active


@pytest.mark.parametrize("value", ["off", "0", "false", "no", "OFF"])
def test_off_wins_over_everything(value: str) -> None:
    assert not decide({VARIABLE: value, "SGLANG_PLATFORM": ENTRY_POINT_NAME}, PLAIN).active


@pytest.mark.parametrize("value", ["on", "1", "true", "yes"])
def test_on_overrides_signs_of_hardware(value: str) -> None:
    signs = Signs(device_nodes=("/dev/dri",), kernel_distributions=("flashinfer-python",))
    assert decide({VARIABLE: value}, signs).active


@pytest.mark.parametrize(
    "choice", [{"SGLANG_PLATFORM": "somebodys_npu"}, {"SGLANG_USE_CPU_ENGINE": "1"}]
)
def test_on_does_not_fight_another_explicit_choice(choice: dict[str, str]) -> None:
    assert not decide({VARIABLE: "on", **choice}, PLAIN).active


def test_selecting_it_by_name_activates_it() -> None:
    signs = Signs(other_platforms=("somebodys_npu",))
    assert decide({"SGLANG_PLATFORM": ENTRY_POINT_NAME}, signs).active


def test_another_word_is_refused_naming_the_variable() -> None:
    with pytest.raises(ConfigError, match=VARIABLE):
        decide({VARIABLE: "perhaps"}, PLAIN)


def test_activation_returns_the_class_and_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(activation, "read_signs", lambda: PLAIN)
    monkeypatch.setattr(activation.os, "environ", {})
    assert activation.activate() == PLATFORM_CLASS
    (line,) = caplog.messages
    assert "CPU reference platform" in line
    assert VARIABLE in line


def test_a_bad_value_in_somebody_elses_process_is_logged_and_stays_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(activation.os, "environ", {VARIABLE: "perhaps"})
    assert activation.activate() is None
    assert VARIABLE in caplog.text


def test_activation_imports_neither_sglang_nor_torch() -> None:
    code = (
        "import sys; from sglang_worker.reference_platform.activation import activate; activate();"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'sglang', 'torch'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
