"""A real frontend with stub workers that carry the real lifecycle and system listener."""

from __future__ import annotations

from pathlib import Path

from tests.support.environment import with_repository_on_path
from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until


class Deployment(Stack):
    """Starts stubs of one model; see `stub_worker` for their flags."""

    model: Path

    def stub(
        self,
        name: str,
        *arguments: str,
        grace_s: float = 0.3,
        with_system_port: bool = True,
        ready: bool = True,
    ) -> Worker:
        """Returns once it serves. Not ``ready``: returns at once, `frontend` then waits for it."""
        repository = with_repository_on_path(self.environ())["PYTHONPATH"]
        worker = self.start_worker(
            "--model-path",
            str(self.model),
            *arguments,
            module="tests.unit.lifecycle.stub_worker",
            name=name,
            with_system_port=with_system_port,
            environ={
                "PYTHONPATH": repository,
                "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": str(grace_s),
            },
        )
        if ready:
            _wait_serving(worker)
        return worker

    def stop(self) -> None:
        """Kill what still runs: the graceful end has tests of its own and costs seconds each."""
        for process in self._started:
            process.kill()
        super().stop()

    def frontend(self, migration_limit: int = 3) -> Frontend:
        """Starts beside the stubs; returns once these serve and it knows their model."""
        frontend = self.start_frontend(migration_limit=migration_limit, ready=False)
        for worker in self._started:
            if isinstance(worker, Worker):
                _wait_serving(worker)
        frontend.wait_for_model("stub")
        return frontend


def _wait_serving(stub: Worker) -> None:
    stub.wait_log(r"^stub ready ", deadline_s=60.0)


def status(worker: Worker) -> dict[str, str | None]:
    assert worker.system is not None
    answer = worker.system.get("/engine/status").json()
    assert isinstance(answer, dict)
    return answer


def wait_state(worker: Worker, state: str, deadline_s: float = 10.0) -> None:
    wait_until(
        lambda: status(worker)["state"] == state,
        f"{worker.name} is {state}",
        deadline_s=deadline_s,
        interval_s=0.01,
    )


def post(worker: Worker, path: str) -> tuple[int, dict[str, str | None]]:
    assert worker.system is not None
    reply = worker.system.post(path, {})
    return reply.status, reply.json()
