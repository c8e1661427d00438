"""A worker without an engine: the real listener and child around a small test app.

Run as a process (`python fake_worker.py <settings JSON>`), so that tests may stop, block and kill
it. It prints one JSON line with the port and the child's pid, then obeys calls:

POST /engine/echo       the request as the app saw it
POST /engine/block_loop {"seconds": s}: blocks the event loop
POST /engine/hold_gil   {"seconds": s}: sleeps in C with the GIL held
POST /engine/slow       {"seconds": s}: awaits
POST /engine/publish    changes of the pushed state, acknowledged
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys
import time

import msgspec
from sglang_worker.config.worker_config import SystemSettings
from sglang_worker.system.app import EngineRequest, EngineResponse
from sglang_worker.system.http import HttpLimits
from sglang_worker.system.listener import SystemListener
from sglang_worker.system.state import Access, Catalog, Phase, RouteSpec, RuntimeAddress

ANY = ("GET", "POST", "PUT", "PATCH", "DELETE")

RUNNERS: list[dict[str, object]] = [
    {
        "runner": "target",
        "family": "gdn",
        "stamp": {"decode": "triton", "prefill": "flashinfer", "verify": "triton"},
        "source": {"decode": "base", "prefill": "auto_default", "verify": "rule"},
        "kernels": {
            "decode": "TritonGDNKernel",
            "prefill": "TritonGDNKernel",
            "verify": "TritonGDNKernel",
        },
        "agrees": False,
        "differences": [
            {
                "phase": "prefill",
                "stamp": "flashinfer",
                "kernel": "TritonGDNKernel",
                "reason": "unsupported_on_device",
            }
        ],
        "report_valid": True,
    },
    {"runner": "draft", "family": None, "stamp": None, "kernels": None, "agrees": None},
]


class FakeApp:
    def __init__(self, listener: SystemListener, spare_limit: int) -> None:
        self.listener = listener
        self.refusals: list[list[object]] = []
        self.calls = 0
        self._spare_limit = spare_limit

    def catalog(self) -> Catalog:
        def route(name: str, **more: object) -> RouteSpec:
            return RouteSpec(path=f"/engine/{name}", **{"methods": ANY, **more})  # type: ignore[arg-type]

        return Catalog(
            routes=(
                route("status", methods=("GET",), access=Access.OPEN),
                *(route(n) for n in ("echo", "block_loop", "hold_gil", "slow", "publish")),
                route("refusals"),
                route("weights", body_limit_bytes=self._spare_limit),
                route("unpickle", access=Access.UNPICKLES, methods=("POST",)),
                RouteSpec(path="/v1/loras/", methods=("DELETE",), prefix=True),
            ),
            openapi={"openapi": "3.1.0"},
            runners=RUNNERS,
            model="demo/qwen3-next-tiny",
        )

    def refused(self, method: str, path: str, remote: str, status: int) -> None:
        self.refusals.append([method, path, remote, status])

    async def handle(self, request: EngineRequest) -> EngineResponse:
        self.calls += 1
        answer = await self._answer(request)
        return EngineResponse(
            status=200,
            body=json.dumps(answer).encode(),
            headers={"Content-Type": "application/json"},
        )

    async def _answer(self, request: EngineRequest) -> object:
        name = request.path.rpartition("/")[2]
        arguments = json.loads(request.body) if request.body[:1] == b"{" else {}
        if name == "block_loop":
            time.sleep(arguments["seconds"])  # noqa: ASYNC251 - blocking the loop is the point
        elif name == "hold_gil":
            # PyDLL keeps the GIL while the C function runs.
            ctypes.PyDLL(None).usleep(int(arguments["seconds"] * 1e6))
        elif name == "slow":
            await asyncio.sleep(arguments["seconds"])
        elif name == "publish":
            await self.listener.publish_acknowledged(**arguments)
            return {"child": self.listener.child_pid}
        elif name == "refusals":
            return self.refusals
        return {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "bytes": len(request.body),
            "remote": request.remote,
            "calls": self.calls,
            "child": self.listener.child_pid,
        }


class Options(msgspec.Struct):
    host: str = "127.0.0.1"
    port: int = 0
    token_file: str | None = None
    runtime_port: int | None = None
    serving: bool = True
    load_s: float = 0.0
    idle_timeout_s: float = 75.0
    head_timeout_s: float = 15.0
    body_timeout_s: float = 20.0
    connections: int = 512
    weights_limit: int = 4 << 20


async def serve(listener: SystemListener, options: Options) -> None:
    await listener.attach(FakeApp(listener, options.weights_limit))
    if options.serving:
        changes: dict[str, object] = {
            "phase": Phase.REGISTERED,
            "started": True,
            "healthy": True,
            "worker_id": "7",
            "state": "serving",
        }
        if options.runtime_port is not None:
            changes["runtime"] = RuntimeAddress("127.0.0.1", options.runtime_port)
        await listener.publish_acknowledged(**changes)
    print(json.dumps({"attached": True}), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    options = msgspec.json.decode(sys.argv[1], type=Options)
    settings = SystemSettings(
        host=options.host,
        port=options.port,
        token_file=options.token_file,
        weights_body_limit_bytes=options.weights_limit,
    )
    limits = HttpLimits(
        idle_timeout_s=options.idle_timeout_s,
        head_timeout_s=options.head_timeout_s,
        body_timeout_s=options.body_timeout_s,
        connections=options.connections,
    )
    listener = SystemListener(settings, limits)
    listener.start()
    print(
        json.dumps(
            {
                "port": listener.address[1],
                "child": listener.child_pid,
                "phase_socket": listener.phase_socket,
            }
        ),
        flush=True,
    )
    time.sleep(options.load_s)  # the engine loads: no loop runs, the main thread is blocked
    asyncio.run(serve(listener, options))


if __name__ == "__main__":
    main()
