"""Moving KV caches between a prefill and a decode worker that both run on the CPU.

SGLang's NIXL backend tells NIXL that the pools lie in the memory of a GPU. Here they are ordinary
memory, which NIXL moves as well when it is told so.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any


def manager_of_host_memory(kv_class: Any, *requested: Any, **options: Any) -> Any:
    """AFTER hook of SGLang's ``get_kv_class``: NIXL's manager for pools in ordinary memory.

    Other backends ask the engine of their transport and need no change.
    """
    if getattr(kv_class, "__name__", "") != "NixlKVManager":
        return kv_class
    return _host_memory(kv_class)


@lru_cache(maxsize=1)
def _host_memory(manager: Any) -> Any:
    class HostMemoryNixlKVManager(manager):
        def register_buffer_to_engine(self) -> None:
            """SGLang's first use of the agent; every later one looks the kind up there too."""
            kinds = self.agent.nixl_mems
            kinds["VRAM"] = kinds["DRAM"]
            super().register_buffer_to_engine()

    return HostMemoryNixlKVManager
