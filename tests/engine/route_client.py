"""Starting `tests.engine.route_worker` and calling it."""

from __future__ import annotations

import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.support.environment import REPOSITORY

REFERENCE_ALLOWLIST = (
    "server_info=get_server_info pause_generation:tm flush_cache init_weights_update_group "
    "update_weights_from_distributed:tm destroy_weights_update_group continue_generation:tm"
)
MORE_ROUTES = (
    "begin_weight_update:tm end_weight_update:tm ops/state=get_internal_state:tm "
    "info=get_server_info abort_request:tm profile=start_profile model=get_model_info"
)
START_TIMEOUT_S = 480


class RouteWorker:
    """`tests.engine.route_worker` as a process."""

    def __init__(self, model: Path, folder: Path) -> None:
        log = folder / "log"
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.engine.route_worker",
                str(model),
                "--skip-tokenizer-init",
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            # Relative paths in hostile bodies end up here, and names of models reach no hub.
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                "HF_HUB_OFFLINE": "1",
                "DYN_SYSTEM_PORT": "0",
                "DYN_SYSTEM_HOST": "127.0.0.1",
                "DYN_SGLANG_ENGINE_ROUTES": f"{REFERENCE_ALLOWLIST} {MORE_ROUTES}",
            },
        )
        lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(
            target=lambda: lines.put(self.process.stdout.readline()),  # type: ignore[union-attr]
            daemon=True,
        ).start()
        try:
            described = lines.get(timeout=START_TIMEOUT_S)
            self.port: int = json.loads(described)["port"]
        except (queue.Empty, ValueError):
            self.stop()
            raise AssertionError(f"the worker did not start\n{log.read_text()[-4000:]}") from None

    def call(
        self, path: str, body: Any = None, method: str = "POST", timeout_s: float = 60
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, content)
        answer = connection.getresponse()
        value = json.loads(answer.read())
        connection.close()
        return answer.status, value

    def control(self, name: str, body: Any = None) -> tuple[int, Any]:
        return self.call(f"/engine/control/{name}", body)

    def state(self) -> str:
        return self.call("/engine/status", method="GET")[1]["state"]

    def settle(self) -> None:
        """Undo whatever hostile calls have left: memory, pause, drain, session, profile."""
        self.control("resume_memory_occupation")
        self.control("continue_generation")
        self.call("/engine/end_weight_update")
        self.control("stop_profile")
        assert self.call("/engine/resume")[0] == 200

    def serves(self) -> bool:
        """A generation runs from end to end."""
        assert self.call("/engine/test/streams", {"start": 1, "tokens": 4})[0] == 200
        results = self.call("/engine/test/streams", {"wait": True})[1]["results"]
        return [result["finish"] for result in results] == ["length"]

    def stop(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._log.close()
