"""NIXL between two workers on a CPU moves ordinary memory."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.reference_platform.transfer import manager_of_host_memory


class Agent:
    def __init__(self) -> None:
        self.nixl_mems = {"DRAM": 0, "VRAM": 1}


class NixlKVManager:
    """As SGLang's: the first use of the agent is to register the pools as the GPU's."""

    def __init__(self) -> None:
        self.agent = Agent()
        self.registered: list[int] = []
        self.register_buffer_to_engine()

    def register_buffer_to_engine(self) -> None:
        self.registered.append(self.agent.nixl_mems["VRAM"])


class MooncakeKVManager:
    pass


def test_pools_are_registered_as_ordinary_memory() -> None:
    made: Any = manager_of_host_memory(NixlKVManager, "nixl", "manager")()
    assert isinstance(made, NixlKVManager)
    assert made.registered == [made.agent.nixl_mems["DRAM"]]


def test_senders_receivers_and_other_backends_stay_as_they_are() -> None:
    assert manager_of_host_memory(MooncakeKVManager) is MooncakeKVManager
    assert manager_of_host_memory(None) is None


def test_the_installed_nixl_keeps_its_kinds_of_memory_where_the_platform_looks() -> None:
    nixl = pytest.importorskip("nixl._api", reason="NIXL is in the CPU lock only")
    agent = nixl.nixl_agent("kinds", nixl.nixl_agent_config(backends=[]))
    assert agent.nixl_mems["DRAM"] != agent.nixl_mems["VRAM"]
