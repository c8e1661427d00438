"""Workers behind the real frontend, and what is measured of each."""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import json
import signal
import statistics
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_media import report
from benchmarks.gpu_media.cases import Case
from tests.support.stack import Frontend, Stack, Worker

FLAGS = {"image": "--image-diffusion-worker", "video": "--video-generation-worker"}
PATHS = {"image": "/v1/images/generations", "video": "/v1/videos"}
REQUEST_TIMEOUT_S = 120.0
CANCEL_STEPS = 250
# How `engine.compat_rope` begins its warning.
NO_ROPE = "FlashInfer's rotary embedding cannot be built here"


def start_workers(
    stack: Stack, models: dict[str, Path], scratch: Path, seconds: float
) -> list[Served]:
    """One worker per kind, loading side by side; one that does not start carries a fault."""
    began_s = time.monotonic()
    started = [
        (
            kind,
            stack.start_worker(
                *("--model-path", str(model), "--served-model-name", kind, FLAGS[kind]),
                *("--attention-backend", "torch_native", "--log-level", "info"),
                *("--media-output-fs-url", f"file://{scratch}/media"),
                *("--endpoint", f"dynamo.{kind}.generate"),
                name=kind,
                environ={"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "1"},
            ),
        )
        for kind, model in models.items()
    ]
    frontend = stack.start_frontend()
    served = []
    for kind, worker in started:
        left_s = max(10.0, seconds - (time.monotonic() - began_s))
        served.append(Served(kind, worker, frontend, began_s))
        served[-1].wait(left_s)
    return served


class Served:
    def __init__(self, kind: str, worker: Worker, frontend: Frontend, began_s: float) -> None:
        self.kind = kind
        self.fault: dict[str, str] | None = None
        self._worker = worker
        self._frontend = frontend
        self._began_s = began_s
        self._ready_s = 0.0

    def wait(self, seconds: float) -> None:
        try:
            self._worker.wait_for(self._is_ready, "ready", deadline_s=seconds, ignore=(OSError,))
            self._ready_s = time.monotonic() - self._began_s
            self._frontend.wait_for_model(self.kind)
        except Exception as error:
            log = self._worker.log()[-6000:]
            self.fault = report.fault(f"{self.kind}: start", f"{type(error).__name__}", log)

    def _is_ready(self) -> bool:
        self._worker.require_running()
        system = self._worker.system
        return system is not None and system.get("/ready").status == 200

    def start_rows(self) -> list[dict[str, Any]]:
        if self.fault is not None:
            return []
        row: dict[str, Any] = {"what": f"{self.kind} worker ready, warm-up included"}
        row["s"] = round(self._ready_s, 1)
        if NO_ROPE in self._worker.log():
            row["rope"] = "SGLang's PyTorch version: FlashInfer's could not be built"
        return [row]

    def measure(self, case: Case, runs: int) -> dict[str, Any]:
        """Seconds of each whole request, base64 and all; the first answer is decoded."""
        took_s, sizes = [], []
        for seed in range(runs):
            began_s = time.monotonic()
            body = case.body(self.kind, seed) | {"response_format": "b64_json"}
            reply = self._frontend.client.post(PATHS[self.kind], body)
            took_s.append(time.monotonic() - began_s)
            if reply.status != 200:
                raise AssertionError(f"{reply.status}: {reply.text[:500]}\n{self.tail()}")
            data = [base64.b64decode(one["b64_json"]) for one in reply.json()["data"]]
            sizes.append(sum(map(len, data)))
            if seed == 0:
                check_content(case, data)
        stored = self._frontend.client.post(PATHS[self.kind], case.body(self.kind, 0))
        url = stored.json()["data"][0]["url"]
        if not Path(url.removeprefix("file://")).stat().st_size:
            raise AssertionError(f"{url} is empty")
        return {
            "what": f"worker: {case.name}",
            "s": round(statistics.median(took_s), 3),
            "spread_s": [round(min(took_s), 3), round(max(took_s), 3)],
            "bytes": int(statistics.median(sizes)),
        }

    def cancel(self) -> dict[str, Any]:
        """A client leaves a long generation; how soon the next, tiny one is answered."""
        long = Case(self.kind, (832, 480), CANCEL_STEPS, frames=33 if self.kind == "video" else 1)
        connection = http.client.HTTPConnection("127.0.0.1", self._frontend.http_port)
        body = json.dumps(long.body(self.kind, 1))
        connection.request("POST", PATHS[self.kind], body, {"content-type": "application/json"})
        self._worker.wait_log(rf"{CANCEL_STEPS}, seed 1.*", deadline_s=20.0)
        time.sleep(1.0)
        connection.close()
        began_s = time.monotonic()
        tiny = Case(self.kind, (256, 256), 1, frames=5 if self.kind == "video" else 1)
        reply = self._frontend.client.post(PATHS[self.kind], tiny.body(self.kind, 2))
        took_s = time.monotonic() - began_s
        log = self._worker.log()
        return {
            "what": f"{self.kind}: next answer after a client left {CANCEL_STEPS} steps",
            "s": round(took_s, 3),
            "status": reply.status,
            "cancelled": "cancelled after step" in log,
            "said": [line[-120:] for line in log.splitlines() if "cancelled after step" in line][
                :1
            ],
        }

    def stop(self) -> dict[str, Any]:
        began_s = time.monotonic()
        self._worker.send(signal.SIGTERM)
        code = self._worker.wait_exit(60.0)
        took_s = time.monotonic() - began_s
        self._worker.check_nothing_left()
        return {"what": f"{self.kind}: SIGTERM, exit code {code}", "s": round(took_s, 2)}

    def tail(self) -> str:
        with contextlib.suppress(OSError):
            return self._worker.log()[-4000:]
        return ""


def check_content(case: Case, data: list[bytes]) -> None:
    """Raises AssertionError unless the files are what was asked for."""
    if len(data) != case.outputs:
        raise AssertionError(f"{len(data)} outputs, not {case.outputs}")
    if case.kind == "image":
        from PIL import Image

        for content in data:
            image = Image.open(io.BytesIO(content))
            image.load()
            if image.size != case.side:
                raise AssertionError(f"{image.size} is not {case.side}")
        return
    import imageio.v3

    frames = imageio.v3.imread(io.BytesIO(data[0]), extension=".mp4", plugin="FFMPEG")
    if abs(len(frames) - case.frames) > 1 or frames.shape[1:3] != (case.side[1], case.side[0]):
        raise AssertionError(f"the video has the shape {frames.shape}")
