"""A Kubernetes API server double: real HTTP for the calls that a release makes.

It speaks list, watch, get, patch, delete and port-forward for Pods, and get for StatefulSets, and
plays the two controllers that matter: the kubelet (a deleted Pod is stopped, then gone) and the
StatefulSet controller (a namesake of the current revision follows). What a Pod runs is the test's:
see `Workload`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from aiohttp import web

from tests.k8s.objects import (
    GENERATION,
    NAMESPACE,
    SET,
    failure,
    is_ready,
    now,
    set_ready,
    statefulset,
)
from tests.k8s.objects import pod as pod_object
from tests.k8s.port_forward import forward

T = TypeVar("T")
Json = dict[str, Any]


class Workload(Protocol):
    """What Pods run. Called on the server's loop; long work belongs into a thread."""

    async def start(self, name: str, revision: str) -> int:
        """Start it; returns the port of its listener on loopback."""

    async def stop(self, name: str, uid: str) -> None:
        """SIGTERM, and wait for its end."""

    async def ready(self, name: str) -> bool:
        """What the readiness probe says."""


class ApiServer:
    """Use as a context manager; every public method may be called from the test's thread."""

    def __init__(self, workload: Workload, replicas: int, *, replaces: bool = True) -> None:
        self._workload = workload
        self._replicas = replicas
        self._replaces = replaces
        self._pods: dict[str, Json] = {}
        self._version = 100
        self._watchers: set[asyncio.Queue[Json | None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.target = "old"
        self.strategy = "OnDelete"
        self.unseen_reads = 0  # how many reads the StatefulSet's controller lags behind
        self.calls: list[tuple[str, str]] = []
        self.fail: dict[str, int] = {}  # method -> status, for faults of the server itself
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ApiServer:
        self._thread.start()
        self.run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T], deadline_s: float = 120.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(deadline_s)

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "kubeconfig"
        name = "double"
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        path.write_text(json.dumps(value))
        return path

    def pods(self) -> dict[str, Json]:
        return dict(self._pods)

    def change_template(self, revision: str) -> None:
        self.target = revision

    def vanish(self, name: str) -> None:
        """A node is lost: the Pod goes without a deletion through the API."""
        self.run(self._remove(name))

    def evict(self, name: str) -> None:
        """The kubelet ends the Pod, its object stays and says so; a namesake cannot come."""
        self.run(self._evict(name))

    def drop_watches(self) -> None:
        """As an API server does now and then: the stream ends, the client has to come again."""
        self._loop.call_soon_threadsafe(self._end_watches)

    async def _open(self) -> None:
        app = web.Application()
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        app.router.add_get(pods, self._list_or_watch)
        app.router.add_patch(f"{pods}/{{name}}", self._patch)
        app.router.add_delete(f"{pods}/{{name}}", self._delete)
        app.router.add_get(f"{pods}/{{name}}/portforward", self._port_forward)
        app.router.add_get(
            f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{{name}}", self._statefulset
        )
        self._runner = web.AppRunner(app, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        await asyncio.gather(*(self._create(f"{SET}-{one}") for one in range(self._replicas)))
        self._spawn(self._probe())

    async def _close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._end_watches()
        pods = tuple(self._pods.values())
        await asyncio.gather(
            *(self._workload.stop(p["metadata"]["name"], p["metadata"]["uid"]) for p in pods)
        )
        await self._runner.cleanup()

    def _end_watches(self) -> None:
        for queue in self._watchers:
            queue.put_nowait(None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, name: str) -> None:
        revision, uid = self.target, str(uuid.uuid4())
        port = await self._workload.start(name, revision)
        self._put("ADDED", pod_object(name, uid, revision, port))

    async def _remove(self, name: str) -> None:
        pod = self._pods.pop(name)
        self._tell("DELETED", pod)
        await self._workload.stop(name, pod["metadata"]["uid"])
        if self._replaces:
            await self._create(name)

    async def _evict(self, name: str) -> None:
        pod = self._pods.pop(name)
        pod["status"]["phase"] = "Failed"
        await self._workload.stop(name, pod["metadata"]["uid"])
        self._tell("MODIFIED", pod)

    async def _terminate(self, name: str, uid: str) -> None:
        await self._workload.stop(name, uid)
        pod = self._pods.pop(name, None)
        if pod is not None:
            self._tell("DELETED", pod)
        if self._replaces:
            await self._create(name)

    async def _probe(self) -> None:
        """The kubelet's readiness probes."""
        while True:
            for name, pod in tuple(self._pods.items()):
                ready = await self._workload.ready(name)
                if self._pods.get(name) is pod and ready is not is_ready(pod):
                    set_ready(pod, ready)
                    self._put("MODIFIED", pod)
            await asyncio.sleep(0.1)

    def _put(self, kind: str, pod: Json) -> None:
        self._pods[pod["metadata"]["name"]] = pod
        self._tell(kind, pod)

    def _tell(self, kind: str, pod: Json) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        for queue in self._watchers:
            queue.put_nowait({"type": kind, "object": json.loads(json.dumps(pod))})

    def _fault(self, request: web.Request) -> web.Response | None:
        self.calls.append((request.method, request.path))
        status = self.fail.get(request.method)
        return None if status is None else failure(status, "Forbidden")

    async def _list_or_watch(self, request: web.Request) -> web.StreamResponse:
        if fault := self._fault(request):
            return fault
        if request.query.get("labelSelector") != f"app={SET}":
            return failure(400, "BadRequest")
        if request.query.get("watch") not in ("true", "True", "1"):
            metadata = {"resourceVersion": str(self._version)}
            items = list(self._pods.values())
            return web.json_response(
                {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items}
            )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        async with self._watching() as queue:
            with contextlib.suppress(ConnectionResetError):
                while (event := await queue.get()) is not None:
                    await response.write(json.dumps(event).encode() + b"\n")
        return response

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[asyncio.Queue[Json | None]]:
        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            yield queue
        finally:
            self._watchers.discard(queue)

    async def _patch(self, request: web.Request) -> web.Response:
        if fault := self._fault(request):
            return fault
        pod = self._pods.get(request.match_info["name"])
        if pod is None:
            return failure(404, "NotFound")
        body = await request.json()
        annotations = pod["metadata"].setdefault("annotations", {})
        for name, value in body["metadata"]["annotations"].items():
            annotations.pop(name, None) if value is None else annotations.update({name: value})
        self._put("MODIFIED", pod)
        return web.json_response(pod)

    async def _delete(self, request: web.Request) -> web.Response:
        if fault := self._fault(request):
            return fault
        pod = self._pods.get(request.match_info["name"])
        if pod is None:
            return failure(404, "NotFound")
        body = await request.json() if request.can_read_body else {}
        wanted = (body.get("preconditions") or {}).get("uid")
        uid = pod["metadata"]["uid"]
        if wanted not in (None, uid):
            return failure(409, "Conflict")
        if "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = now()
            self._put("MODIFIED", pod)
            self._spawn(self._terminate(pod["metadata"]["name"], uid))
        return web.json_response(pod)

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        if fault := self._fault(request):
            return fault
        if request.match_info["name"] not in self._pods:
            return failure(404, "NotFound")
        return await forward(request)

    async def _statefulset(self, request: web.Request) -> web.Response:
        if fault := self._fault(request):
            return fault
        if request.match_info["name"] != SET:
            return failure(404, "NotFound")
        self.unseen_reads = max(0, self.unseen_reads - 1)
        observed = GENERATION - bool(self.unseen_reads)
        return web.json_response(statefulset(self._replicas, self.target, self.strategy, observed))
