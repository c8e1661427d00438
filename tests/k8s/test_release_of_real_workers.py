"""The whole workflow: a frontend under load, real workers as Pods, the release as a program."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from pathlib import Path

import pytest

from benchmarks.drain_proof.fleet import WorkerKind, real_kind, stub_kind
from benchmarks.drain_proof.load import Load, undisturbed
from benchmarks.drain_proof.plan import pool
from tests.k8s.api_server import ApiServer
from tests.k8s.manifests import DEPLOY, dashboard_metrics
from tests.k8s.objects import NAMESPACE, SET
from tests.k8s.processes import Processes
from tests.support.checkpoints import checkpoint
from tests.support.ports import free_port
from tests.support.stack import Stack
from tests.support.wait import wait_until_async

ENTRY = DEPLOY / "release.py"
TOKEN = "a token of the test"


@pytest.mark.e2e
async def test_a_release_of_workers_without_engine_loses_nothing(
    tmp_path: Path, tiny_model: Path
) -> None:
    await released_under_load(tmp_path, stub_kind(tiny_model), clients=6, rest_s=0.0)


@pytest.mark.e2e
async def test_a_release_of_real_workers_loses_nothing(tmp_path: Path) -> None:
    kind = real_kind(checkpoint("gdn"), "--enable-metrics")
    token = tmp_path / "token"
    token.write_text(TOKEN)
    await released_under_load(tmp_path, kind, clients=3, rest_s=0.2, token=token)


async def released_under_load(
    folder: Path, kind: WorkerKind, *, clients: int, rest_s: float, token: Path | None = None
) -> None:
    requests = pool(7, 24)
    with Stack(folder, {"DYN_LOG": "warn"}) as stack:
        responses = free_port()
        frontend = stack.start_frontend(
            migration_limit=3, environ={"DYN_TCP_RESPONSE_STREAM_PORT": str(responses)}
        )
        pods = Processes(stack, kind, token)
        with ApiServer(pods, replicas=2) as server:
            await until_ready(server, 2)
            await asyncio.to_thread(frontend.wait_for_model, kind.model, deadline_s=120.0)
            assert frontend.client.get("/health").status == 200
            assert frontend.client.get("/live").status == 200
            if token is not None:
                ports_of_the_manifests_are_used([responses, *pods.request_ports.values()])
                runtime_metrics_of_the_dashboard_exist(pods)
            references = await undisturbed(frontend.http_port, kind.model, requests, clients)
            load = Load(frontend.http_port, kind.model, requests, references)
            load.rest_s = rest_s
            before = {name: pod["metadata"]["uid"] for name, pod in server.pods().items()}
            server.change_template("new")
            load.start(clients)
            code, output = await release(server, folder, token)
            score = await load.stop()
            after = server.pods()
        assert code == 0, output
        assert output.count(": done drained") == 2, output
        assert all(after[name]["metadata"]["uid"] != uid for name, uid in before.items())
        assert pods.exit_codes == [0, 0, 0, 0]
        assert score.lost() == 0, (score.verdicts, score.errors, score.differences)
        assert score.requests > 20


async def until_ready(server: ApiServer, count: int) -> None:
    def ready() -> bool:
        pods = server.pods().values()
        return sum(pod["status"]["conditions"][0]["status"] == "True" for pod in pods) == count

    await wait_until_async(ready, f"{count} Pods are ready", deadline_s=240.0, interval_s=0.2)


async def release(server: ApiServer, folder: Path, token: Path | None) -> tuple[int, str]:
    command = [sys.executable, str(ENTRY), "--statefulset", SET, "-n", NAMESPACE]
    command += ["--kubeconfig", str(server.kubeconfig(folder)), "--replace-timeout", "240"]
    if token is not None:
        command += ["--token-file", str(token)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), 500)
    return process.returncode or 0, output.decode()


def ports_of_the_manifests_are_used(ports: list[int]) -> None:
    """The variables that the NetworkPolicy's ports rest on do move the runtime's sockets."""
    for port in ports:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


def runtime_metrics_of_the_dashboard_exist(pods: Processes) -> None:
    system = next(iter(pods.running.values())).system
    assert system is not None
    text = system.get("/metrics").text
    # Nothing has failed here, and what never happened is not shown. The worker's own metrics are
    # held against the dashboard where every one of them has happened (tests/e2e/test_metrics.py).
    wanted = dashboard_metrics("dynamo_") - {"dynamo_component_errors_total"}
    wanted -= dashboard_metrics("dynamo_sglang_")
    assert wanted
    assert {name for name in wanted if not re.search(rf"^{name}\b", text, re.MULTILINE)} == set()
