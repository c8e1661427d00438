"""``make demo`` and ``make serve``: checkpoints, a frontend, a worker, two questions.

Exit codes: 0 done, 1 a step failed (its process's last lines are printed), 130 or 143 when
interrupted. In every case nothing is left running; the logs of the last run stay in DIR/logs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from sglang_worker.demo import client, deployment
from sglang_worker.demo.checkpoints import ensure
from sglang_worker.demo.deployment import MODEL_NAME, Deployment
from sglang_worker.demo.processes import (
    Child,
    ChildSpec,
    DemoFailure,
    adopt_orphans,
    kill_descendants,
    stop_all,
    wait_until,
)
from sglang_worker.demo.progress import Progress
from sglang_worker.demo.summary import acceptance_length, runner_lines
from sglang_worker.errors import WorkerError

STREAMED_QUESTION = "What is speculative decoding?"
PLAIN_QUESTION = "What does draining mean?"
READY_TIMEOUT_S = 180.0
STOP_GRACE_S = 20.0


class Interrupted(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived; ``code`` is 128 + the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class Signals:
    """The first signal interrupts the demo; one that arrives while it stops kills at once."""

    def __init__(self) -> None:
        self._stopping = False

    def install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def stopping(self) -> None:
        self._stopping = True

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._stopping:
            # An exception here could escape from the middle of the clean-up; this cannot.
            kill_descendants()
            os._exit(128 + number)
        self._stopping = True
        raise Interrupted(number)


class Demo:
    """One run; ``close`` stops everything that it started."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._children: list[Child] = []
        self._scratch = Path(tempfile.mkdtemp(prefix="sglang-worker-demo-"))
        self._logs = Path(options.dir) / "logs"

    def run(self) -> None:
        place = self._place()
        self._start(place)
        self._wait_ready(place)
        if self._options.serve:
            self._serve(place)
        else:
            self._converse(place)

    def close(self) -> None:
        """Stop the worker, then the frontend, and whatever they left."""
        started = time.monotonic()
        killed = stop_all(self._children, STOP_GRACE_S)
        if self._children:
            self._progress.done("stopped", time.monotonic() - started)
        if killed:
            self._progress.say(f"  {len(killed)} process(es) had to be killed")
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _place(self) -> Deployment:
        started = time.monotonic()
        model = ensure(self._options.dir, ["gdn"])["gdn"]
        self._progress.done(f"checkpoint {model}", time.monotonic() - started)
        self._logs.mkdir(parents=True, exist_ok=True)
        discovery = self._scratch / "discovery"
        discovery.mkdir()
        serve = self._options.serve
        http_port = self._options.http_port or deployment.free_port(8000 if serve else None)
        system_port = deployment.free_port(8081 if serve else None)
        return Deployment(model.resolve(), discovery, http_port, system_port)

    def _start(self, place: Deployment) -> None:
        self._launch(deployment.frontend(place, os.environ))
        self._launch(deployment.worker(place, os.environ))

    def _launch(self, spec: ChildSpec) -> None:
        try:
            self._children.append(Child(spec, self._logs))
        except OSError as error:
            raise DemoFailure(f"the {spec.name} cannot be started: {error}") from error

    def _wait_ready(self, place: Deployment) -> None:
        def show(elapsed_s: float) -> None:
            _, body = client.get_json(place.system_port, "/startup", timeout_s=1.0)
            phase = body.get("phase") if isinstance(body, dict) else None
            self._progress.waiting(f"worker: {phase or 'starting'}", elapsed_s)

        self._wait(
            lambda: client.get_json(place.system_port, "/ready")[0] == 200,
            f"worker ready on port {place.system_port}",
            show,
        )
        self._wait(
            lambda: MODEL_NAME in client.models(place.http_port),
            f"frontend serves {MODEL_NAME!r} on port {place.http_port}",
            lambda elapsed_s: self._progress.waiting("frontend: finding the worker", elapsed_s),
        )

    def _wait(
        self, condition: Callable[[], bool], what: str, show: Callable[[float], None]
    ) -> None:
        seconds = wait_until(
            condition, self._children, READY_TIMEOUT_S, f"not reached: {what}", show
        )
        self._progress.done(what, seconds)

    def _converse(self, place: Deployment) -> None:
        say = self._progress.say
        say(f"\nstreamed   > {STREAMED_QUESTION}")
        self._progress.piece("           < ")
        streamed = client.ask_streaming(
            place.http_port, MODEL_NAME, STREAMED_QUESTION, self._progress.piece
        )
        say()
        say(f"\nnot streamed > {PLAIN_QUESTION}")
        plain = client.ask(place.http_port, MODEL_NAME, PLAIN_QUESTION)
        say(f"             < {plain.text}\n")
        for name, answer in (("streamed", streamed), ("not streamed", plain)):
            if not answer.text or answer.completion_tokens == 0:
                raise DemoFailure(f"the {name} answer is empty", self._children[-1].tail())
            say(f"{name}: {describe(answer)}")
        _, info = client.get_json(place.system_port, "/engine/server_info", timeout_s=10.0)
        length = acceptance_length(info)
        if length is None:
            raise DemoFailure("the worker reports no acceptance length", self._children[-1].tail())
        say(f"acceptance length: {length:.2f} tokens per step of the target")
        for line in runner_lines(info):
            say(line)

    def _serve(self, place: Deployment) -> None:
        for line in curl_lines(place):
            self._progress.say(line)
        self._progress.say(f"Logs: {self._logs}. Ctrl-C stops everything.")
        while True:
            for child in self._children:
                child.require_running()
            time.sleep(0.5)


def describe(answer: client.Answer) -> str:
    first = "" if answer.first_token_s is None else f", first after {answer.first_token_s:.2f} s"
    return (
        f"{answer.completion_tokens} tokens in {answer.seconds:.2f} s{first}: "
        f"{answer.tokens_per_second:.0f} tokens/s, finish reason {answer.finish_reason}"
    )


def curl_lines(place: Deployment) -> list[str]:
    """Return what to type into a second terminal."""
    web, system = f"http://127.0.0.1:{place.http_port}", f"http://127.0.0.1:{place.system_port}"
    body = f'{{"model": "{MODEL_NAME}", "temperature": 0, "messages": [{{"role": "user", '
    body += '"content": "What is a runner?"}]}'
    return [
        "",
        "Ask it something:",
        f"  curl -s {web}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'",
        f"See its state and runners (in a browser: {system}/engine), drain it, and take it back:",
        f"  curl -s {system}/engine/status",
        f"  curl -s {system}/engine/server_info",
        f"  curl -s -X POST {system}/engine/drain",
        f"  curl -s -X POST {system}/engine/resume",
        "",
    ]


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m sglang_worker.demo", description="Run the demo, or keep it running."
    )
    parser.add_argument("--dir", default=".demo", help="folder for the checkpoints")
    parser.add_argument("--serve", action="store_true", help="keep running until Ctrl-C")
    parser.add_argument("--http-port", type=int, help="the frontend's port; default a free one")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    progress = Progress()
    started = time.monotonic()
    adopt_orphans()
    demo = Demo(options, progress)
    signals = Signals()
    signals.install()
    code = 0
    try:
        demo.run()
    except Interrupted as stop:
        # Ctrl-C is how one leaves ``make serve``.
        code = 0 if options.serve and stop.code == 128 + signal.SIGINT else stop.code
        progress.say(f"\nstopping ({stop})")
    except (DemoFailure, WorkerError, OSError) as error:
        code = 1
        report_failure(error)
    finally:
        signals.stopping()
        demo.close()
    if code == 0 and not options.serve:
        progress.say(f"demo done in {time.monotonic() - started:.1f} s")
    return code


def report_failure(error: Exception) -> None:
    tail = error.tail if isinstance(error, DemoFailure) else ""
    if tail:
        print(f"\n--- last lines ---\n{tail}\n---", file=sys.stderr, flush=True)
    print(f"demo failed: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
