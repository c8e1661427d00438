"""What a log line looks like, how many of them there may be, and what is no line at all."""

from __future__ import annotations

import io
import json
import logging
import logging.config
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sglang_worker.observability.logs import setup
from sglang_worker.observability.logs.flood import FloodFilter, FloodGuard
from sglang_worker.observability.logs.jsonl import JsonFormatter
from sglang_worker.observability.logs.levels import parse_levels
from sglang_worker.observability.logs.tracebacks import Printed, StderrGate, TracebackReader

ANSWER = (
    "Traceback (most recent call last):\n"
    '  File "handler.py", line 3, in generate\n'
    "    raise failure\n"
    "dynamo._core.WorkerUnavailable: this worker is draining\n"
)
FAULT = (
    "Traceback (most recent call last):\n"
    '  File "handler.py", line 9, in generate\n'
    "    return 1 / 0\n"
    "ZeroDivisionError: division by zero\n"
)


def record(message: str = "hello %s", *args: object, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("sglang_worker.x", logging.INFO, "x.py", line, message, args, None)


# --- bounds ---------------------------------------------------------------------------------------


def test_a_flooding_place_is_cut_off_and_its_next_line_says_how_many_are_missing() -> None:
    guard = FloodGuard(limit=3, window_s=10)
    verdicts = [guard.admit("a", now_s=1.0) for _ in range(5)]
    assert verdicts == [0, 0, 0, None, None]
    assert guard.admit("b", now_s=1.0) == 0, "other places are not concerned"
    assert guard.admit("a", now_s=11.0) == 2
    assert guard.admit("a", now_s=11.0) == 0


def test_the_guard_forgets_old_places_instead_of_growing() -> None:
    guard = FloodGuard(limit=1, window_s=10)
    for place in range(5000):
        guard.admit(place, now_s=0.0)
    assert len(guard._places) <= 1024


def test_the_filter_counts_places_not_texts() -> None:
    now = [0.0]
    bounded = FloodFilter(FloodGuard(limit=2, window_s=10), clock=lambda: now[0])
    assert [bounded.filter(record("id %d", number)) for number in range(4)] == [
        True,
        True,
        False,
        False,
    ]
    assert bounded.filter(record("elsewhere", line=2))
    now[0] = 10.0
    late = record("id %d", 9)
    assert bounded.filter(late)
    assert late.getMessage() == "id 9 (2 more of these were not logged)"


def test_a_request_log_that_was_asked_for_is_not_bounded() -> None:
    bounded = FloodFilter(FloodGuard(limit=1))
    asked = logging.LogRecord(
        "sglang.srt.utils.request_logger.stdout", logging.INFO, "r.py", 1, "Receive", (), None
    )
    assert all(bounded.filter(asked) for _ in range(5))


# --- JSON -----------------------------------------------------------------------------------------


def test_a_line_is_one_json_object_with_dynamos_names() -> None:
    made = record("hello %s", "you\nthere")
    made.request_id = "r-1"
    line = JsonFormatter().format(made)
    assert "\n" not in line
    value = json.loads(line)
    assert value["message"] == "hello you\nthere"
    assert (value["level"], value["target"], value["request_id"]) == (
        "INFO",
        "sglang_worker.x",
        "r-1",
    )
    assert value["time"].endswith("Z")


def test_a_failure_is_in_the_same_object() -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        made = logging.LogRecord("x", logging.ERROR, "x.py", 1, "oh", (), sys.exc_info())
    assert "KeyError: 'lost'" in json.loads(JsonFormatter().format(made))["exception"]


def test_arguments_that_do_not_fit_still_give_a_line() -> None:
    assert "%d" in json.loads(JsonFormatter().format(record("n %d", "text")))["message"]


@pytest.mark.parametrize(
    ("text", "base", "targets"),
    [
        ("", logging.INFO, {}),
        ("debug", logging.DEBUG, {}),
        ("warn,sglang_worker=debug", logging.WARNING, {"sglang_worker": logging.DEBUG}),
        ("info,a::b=error", logging.INFO, {"a.b": logging.ERROR}),
        ("[span{x}]=trace,nonsense,off", logging.CRITICAL, {"[span{x}]": logging.DEBUG}),
    ],
)
def test_dyn_log_is_read_as_the_runtime_reads_it(
    text: str, base: int, targets: dict[str, int]
) -> None:
    levels = parse_levels(text)
    assert (levels.base, levels.targets) == (base, targets)


PROGRAM = """
import logging, os, sys
from sglang_worker.observability.logs import setup
setup.configure(os.environ)
exported = setup.for_engine(os.environ, None)
print(exported.get("SGLANG_LOGGING_CONFIG_PATH", ""), flush=True)
logging.getLogger("sglang_worker.test").info("from the worker")
if exported:
    import json, logging.config
    with open(exported["SGLANG_LOGGING_CONFIG_PATH"]) as file:
        logging.config.dictConfig(json.load(file))
    logging.getLogger("sglang.srt").info("from the engine")
"""


def run_program(**environ: str) -> tuple[str, list[str]]:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return ended.stdout.strip(), ended.stderr.splitlines()


def test_json_reaches_the_engine_by_a_file_that_goes_with_the_worker() -> None:
    path, lines = run_program(DYN_LOGGING_JSONL="true")
    messages = [json.loads(line)["message"] for line in lines]
    assert messages == ["from the worker", "from the engine"]
    assert path and not Path(path).exists()


def test_without_json_the_engine_keeps_its_own_format() -> None:
    path, lines = run_program()
    assert path == ""
    assert lines[0].endswith("] from the worker")


def test_an_operators_own_logging_of_sglang_stands() -> None:
    environ = {"DYN_LOGGING_JSONL": "1", "SGLANG_LOGGING_CONFIG_PATH": "mine.json"}
    assert setup.for_engine(environ, None) == {}


def test_an_explicit_log_level_is_the_engines() -> None:
    assert setup.json_config(parse_levels(""), "warning")["loggers"]["sglang"]["level"] == "WARNING"


# --- tracebacks -----------------------------------------------------------------------------------


def test_a_traceback_in_pieces_is_one_whole() -> None:
    reader = TracebackReader()
    parts = [part for piece in ANSWER for part in reader.feed(piece)]
    assert parts == [Printed(ANSWER, "dynamo._core.WorkerUnavailable", "this worker is draining")]


def test_what_stands_around_a_traceback_passes_in_order() -> None:
    reader = TracebackReader()
    assert reader.feed("before\n") == ["before\n"]
    whole, after = reader.feed(FAULT + "after\n")
    assert isinstance(whole, Printed) and whole.type == "ZeroDivisionError"
    assert after == "after\n"


def test_text_that_only_begins_like_a_traceback_is_not_kept_for_ever() -> None:
    reader = TracebackReader()
    assert reader.feed("Trace") == []
    assert reader.feed("s are off\n") == ["Traces are off\n"]
    assert reader.feed("Traceback (most recent call last):\n") == []
    assert "".join(map(str, reader.feed("  x" * 40_000))).endswith("  x")


def in_foreign_thread(gate: StderrGate, text: str) -> None:
    """As the runtime's threads do it: Python does not know the thread."""
    import _thread

    done = threading.Lock()
    done.acquire()

    def write() -> None:
        try:
            for piece in text.splitlines(keepends=True):
                gate.write(piece)
        finally:
            done.release()

    _thread.start_new_thread(write, ())
    assert done.acquire(timeout=10)


def test_an_answer_becomes_one_line_and_a_fault_keeps_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    stream = io.StringIO()
    gate = StderrGate(stream)
    in_foreign_thread(gate, ANSWER)
    assert stream.getvalue() == ""
    assert [one.getMessage() for one in caplog.records] == [
        "a request was answered with WorkerUnavailable: this worker is draining"
    ]
    in_foreign_thread(gate, FAULT)
    assert stream.getvalue() == FAULT


def test_the_same_fault_over_and_over_is_bounded() -> None:
    stream = io.StringIO()
    now = [0.0]
    gate = StderrGate(stream, clock=lambda: now[0])
    for _ in range(200):
        in_foreign_thread(gate, FAULT)
    assert stream.getvalue().count("ZeroDivisionError") == 50
    now[0] = 10.0
    in_foreign_thread(gate, FAULT)
    assert stream.getvalue().endswith("(150 more of these were not shown)\n")


def test_our_own_threads_write_as_ever() -> None:
    stream = io.StringIO()
    gate = StderrGate(stream)
    gate.write(ANSWER)
    assert stream.getvalue() == ANSWER
    assert gate.getvalue() == ANSWER, "every other attribute is the stream's"
