"""Other workers, as Dynamo's discovery shows them."""

from __future__ import annotations

from typing import Any

from sglang_worker.config.worker_config import EndpointAddress


async def until_listed(runtime: Any, address: EndpointAddress) -> None:
    """Return once discovery lists an instance at ``address``."""
    client = await runtime.endpoint(address.path).client()
    await client.wait_for_instances()
