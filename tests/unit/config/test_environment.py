"""The one module that writes the environment, and what it hands to the runtime and to SGLang."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import sglang_worker
from sglang_worker.config import environment
from sglang_worker.config.environment import (
    RUNTIME_DEADLINE,
    hidden_variables,
    runtime_deadline_s,
    switched_off,
    variables,
)

from tests.unit.config.support import parse

WRITES = re.compile(
    r"os\.environ(\[[^\]]+\]\s*=[^=]|\.(update|pop|setdefault|clear)\()|del os\.environ|os\.putenv"
)


@pytest.fixture
def restored() -> Iterator[None]:
    saved = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(saved)


def test_no_other_module_writes_the_environment() -> None:
    root = Path(sglang_worker.__file__).parent
    writers = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if WRITES.search(path.read_text())
    }
    assert writers <= {"config/environment.py"}, writers


def test_the_runtimes_server_takes_the_second_port() -> None:
    config = parse("--metadata-port", "9001", DYN_SYSTEM_PORT="8081", DYN_SYSTEM_HOST="127.0.0.1")
    wanted = variables(config, {})
    assert (wanted["DYN_SYSTEM_PORT"], wanted["DYN_SYSTEM_HOST"]) == ("9001", "127.0.0.1")


def test_without_a_system_port_the_runtime_opens_no_server() -> None:
    assert variables(parse(), {})["DYN_SYSTEM_PORT"] == "-1"


def test_the_runtimes_deadline_is_above_our_own_budget() -> None:
    config = parse("--shutdown-timeout", "100", DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS="20")
    assert runtime_deadline_s(config) > 120
    assert int(variables(config, {})[RUNTIME_DEADLINE]) > 120


def test_what_the_operator_set_is_left_alone() -> None:
    theirs = {
        RUNTIME_DEADLINE: "7",
        "PYTHONHASHSEED": "3",
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH_WAIT_SECS": "9",
    }
    assert not theirs.keys() & variables(parse(), theirs).keys()


def test_coredumps_keep_their_wait() -> None:
    name = environment.COREDUMP_WAIT
    assert variables(parse(), {})[name] == "0"
    assert name not in variables(parse(), {"CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1"})
    assert name not in variables(parse("--crash-dump-folder", "/x"), {})


def test_planes_reach_the_runtime() -> None:
    config = parse("--response-plane", "quic", "--tcp-tls-server-name", "x")
    wanted = variables(config, {})
    assert wanted["DYN_RESPONSE_PLANE"] == "quic"
    assert wanted["DYN_TCP_TLS_SERVER_NAME"] == "x"


def test_variables_whose_presence_means_yes_are_removed_by_a_no() -> None:
    assert "DYN_TCP_TLS_INSECURE" in switched_off(parse("--no-tcp-tls-insecure"))
    assert "DYN_TCP_TLS_INSECURE" not in switched_off(parse("--tcp-tls-insecure"))


def test_later_nodes_do_not_block_in_sglangs_constructor() -> None:
    config = parse("--node-rank", "1", "--nnodes", "2", "--dist-init-addr", "10.0.0.1:5000")
    assert variables(config, {})["SGLANG_BLOCK_NONZERO_RANK_CHILDREN"] == "0"


@pytest.mark.usefixtures("restored")
def test_apply_writes_what_was_planned() -> None:
    os.environ["DYN_TCP_TLS_INSECURE"] = "0"
    os.environ.pop(RUNTIME_DEADLINE, None)
    config = parse(DYN_SYSTEM_PORT="0")
    planned = variables(config, os.environ)
    environment.apply(config)
    assert {name: os.environ[name] for name in planned} == planned
    assert "DYN_TCP_TLS_INSECURE" not in os.environ


@pytest.mark.usefixtures("restored")
def test_the_platforms_variables_stand_before_torch_loads() -> None:
    os.environ["OMP_NUM_THREADS"] = "7"
    os.environ.pop("OMP_WAIT_POLICY", None)
    added = environment.prepare({**os.environ, "DYN_SGL_REFERENCE_PLATFORM": "on"})
    assert "OMP_WAIT_POLICY" in added and os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "OMP_NUM_THREADS" not in added and os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.usefixtures("restored")
def test_without_the_platform_nothing_is_prepared() -> None:
    assert environment.prepare({"DYN_SGL_REFERENCE_PLATFORM": "off"}) == {}


@pytest.mark.usefixtures("restored")
def test_hidden_variables_come_back_even_after_an_error() -> None:
    os.environ["DYN_X"] = "1"
    with pytest.raises(RuntimeError), hidden_variables(("DYN_",)):
        assert "DYN_X" not in os.environ
        raise RuntimeError
    assert os.environ["DYN_X"] == "1"
