"""Prints Dynamo's forward-pass metrics of one endpoint, a JSON object per line, until it is ended.

``python -m tests.e2e.pass_listener dynamo.backend.generate``
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
from dynamo.llm import FpmEventSubscriber
from dynamo.runtime import DistributedRuntime


async def listen(path: str) -> None:
    loop = asyncio.get_running_loop()
    runtime = DistributedRuntime(loop, "file", "tcp", event_plane="zmq", response_plane="tcp")
    subscriber = FpmEventSubscriber(runtime.endpoint(path))
    print("listening", flush=True)
    while True:
        payload: Any = await asyncio.to_thread(subscriber.recv)
        if payload is None:
            return
        print(msgspec.json.encode(msgspec.msgpack.decode(bytes(payload))).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(listen(sys.argv[1]))
