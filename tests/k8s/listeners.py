"""Workers' system listeners that misbehave on demand, for what real workers do too rarely."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web


class Manners(msgspec.Struct, kw_only=True):
    """``unconfirmed``: how many drains discovery does not confirm (-1: all). ``refuses``: drains
    are answered 409. ``stuck``: a drain never ends. ``drainable`` False: another worker type.
    ``foreign``: a listener that is not this worker's. ``resumes``: resume is confirmed.
    ``serves``: it becomes ready. ``token``: needed by drain and resume."""

    unconfirmed: int = 0
    refuses: bool = False
    stuck: bool = False
    drainable: bool = True
    foreign: bool = False
    resumes: bool = True
    serves: bool = True
    silent: bool = False
    token: str | None = None


class Listener:
    """One listener on loopback, with the lifecycle that its manners allow."""

    def __init__(self, manners: Manners) -> None:
        self.manners = manners
        self.state = "serving"
        self.asked: list[str] = []
        self._polls = 0

    async def start(self) -> int:
        app = web.Application()
        for path, handler in (
            ("/engine/status", self._status),
            ("/engine", self._overview),
            ("/ready", self._ready),
        ):
            app.router.add_get(path, handler)
        app.router.add_post("/engine/drain", self._drain)
        app.router.add_post("/engine/resume", self._resume)
        self._runner = web.AppRunner(app, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        port: int = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        return port

    async def stop(self) -> None:
        await self._runner.cleanup()

    def body(self, **more: Any) -> dict[str, Any]:
        reason = "dynamo_inflight" if self.state == "draining" else None
        return {"worker_id": "1", "state": self.state, "reason": reason, **more}

    async def _status(self, _request: web.Request) -> web.Response:
        if self.manners.silent:
            return web.json_response({"error": "the worker is starting"}, status=503)
        if self.manners.foreign or not self.manners.drainable:
            return web.json_response({"error": "no such route"}, status=404)
        if self.state == "draining" and not self.manners.stuck:
            self._polls += 1
            if self._polls > 2:
                self.state = "drained"
        return web.json_response(self.body())

    async def _overview(self, _request: web.Request) -> web.Response:
        if self.manners.foreign:
            return web.Response(status=404, text="Route not found")
        return web.json_response({"routes": [{"path": "/ready"}]})

    async def _ready(self, _request: web.Request) -> web.Response:
        ready = self.manners.serves and self.state == "serving"
        return web.json_response(
            {"ready": ready, "reason": None if ready else self.state}, status=200 if ready else 503
        )

    async def _drain(self, request: web.Request) -> web.Response:
        self.asked.append("drain")
        if refusal := self._locked(request):
            return refusal
        if self.manners.refuses:
            return web.json_response(self.body(error="continue generation first"), status=409)
        self.state = "draining"
        if self.manners.unconfirmed:
            self.manners.unconfirmed -= 1
            return web.json_response(self.body(error="discovery did not confirm"), status=503)
        return web.json_response(self.body(), status=202)

    async def _resume(self, request: web.Request) -> web.Response:
        self.asked.append("resume")
        if refusal := self._locked(request):
            return refusal
        self.state = "serving"
        self._polls = 0
        if not self.manners.resumes:
            return web.json_response(self.body(error="discovery did not confirm"), status=503)
        return web.json_response(self.body())

    def _locked(self, request: web.Request) -> web.Response | None:
        token = self.manners.token
        if token is None or request.headers.get("Authorization") == f"Bearer {token}":
            return None
        return web.json_response({"error": "a valid bearer token is required"}, status=401)


class Listeners:
    """The `Workload` of the API server double. ``manners`` by revision or by Pod name."""

    def __init__(self, **manners: Manners) -> None:
        self._manners = {name.replace("_", "-"): value for name, value in manners.items()}
        self.running: dict[str, Listener] = {}
        self.past: list[tuple[str, Listener]] = []

    async def start(self, name: str, revision: str) -> int:
        manners = self._manners.get(f"{name}-{revision}") or self._manners.get(revision)
        listener = Listener(msgspec.structs.replace(manners) if manners else Manners())
        port = await listener.start()
        self.running[name] = listener
        return port

    async def stop(self, name: str, uid: str) -> None:
        listener = self.running.pop(name)
        self.past.append((name, listener))
        await listener.stop()
        await asyncio.sleep(0)

    async def ready(self, name: str) -> bool:
        listener = self.running.get(name)
        return listener is not None and listener.manners.serves and listener.state == "serving"
