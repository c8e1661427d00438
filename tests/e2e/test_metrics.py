"""One scrape of a real worker: SGLang's series, the runtime's and ours, complete and only once."""

from __future__ import annotations

import json
import re
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import promql
from tests.support.checkpoints import checkpoint
from tests.support.client import HttpClient, OpenAIClient, Stream
from tests.support.environment import REPOSITORY
from tests.support.exposition import OWN, Scrape, faults, own_faults
from tests.support.ports import free_port
from tests.support.stack import Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

MODEL = "metered"
WHOLE, STREAMED = 3, 2
PAGE = REPOSITORY / "docs" / "metrics.md"
MONITORING = REPOSITORY / "deploy" / "k8s" / "components" / "monitoring"
# What Prometheus itself adds to every series of a target.
TARGET_LABELS = {"pod", "namespace", "instance", "job"}
LATENCIES = {
    "sglang:time_to_first_token_seconds": WHOLE + STREAMED,
    "sglang:e2e_request_latency_seconds": WHOLE + STREAMED,
    "sglang:request_time_per_output_token_seconds": WHOLE + STREAMED,
}


class Metered:
    def __init__(self, folder: Path) -> None:
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.stack = Stack(folder)
        frontend = self.stack.start_frontend(ready=False)
        events = {"publisher": "zmq", "endpoint": f"tcp://*:{free_port()}"}
        self.worker: Worker = self.stack.start_worker(
            "--model-path",
            str(checkpoint("gdn")),
            "--served-model-name",
            MODEL,
            "--enable-metrics",
            *("--kv-events-config", json.dumps(events)),
            "--engine-route",
            "flush_cache",
            environ={
                "TMPDIR": str(self.temporary),
                "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.2",
            },
            ready_path="/ready",
            ready_deadline_s=180.0,
        )
        frontend.wait_for_model(MODEL)
        self.client: OpenAIClient = frontend.client
        assert self.worker.system is not None
        self.system: HttpClient = self.worker.system

    def stream(self, tokens: int) -> Stream:
        """An answer of that many tokens, whatever the model says."""
        body = {"model": MODEL, "prompt": "cats and dogs", "max_tokens": tokens}
        body |= {"stream": True, "ignore_eos": True}
        return self.client.open("POST", "/v1/completions", body)

    def scrape(self, query: str = "") -> Scrape:
        reply = self.system.get("/metrics" + query)
        assert reply.status == 200
        return Scrape(reply.text)

    def when(self, holds: Callable[[Scrape], bool], message: str) -> Scrape:
        """The first scrape of which it holds."""
        seen: list[Scrape] = []

        def check() -> bool:
            seen[:] = [self.scrape()]
            return holds(seen[0])

        wait_until(check, message, deadline_s=30)
        return seen[0]

    def folders(self) -> list[Path]:
        return sorted(self.temporary.glob("sglang-worker-metrics-*"))


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metered]:
    started = Metered(tmp_path_factory.mktemp("metrics"))
    yield started
    started.stack.stop()


@pytest.fixture(scope="module")
def busy(metered: Metered) -> Scrape:
    """A scrape after requests of every outcome. The tests of this module run in order."""
    before = metered.scrape()
    for name in LATENCIES:
        assert before.values(f"{name}_count") in ([], [0.0]), "probes are no requests"
    for _ in range(WHOLE):
        assert metered.client.chat(MODEL, "Which animal purrs?", max_tokens=8).status == 200
    for _ in range(STREAMED):
        with metered.client.open(
            "POST",
            "/v1/chat/completions",
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": "Which animal barks?"}],
                "max_tokens": 12,
                "stream": True,
            },
        ) as stream:
            assert len(list(stream)) > 3
    refused = metered.client.chat(MODEL, "x", max_tokens=4, stop_token_ids=[10**9])
    assert refused.status == 400
    assert metered.system.post("/engine/flush_cache").status == 200
    assert metered.system.post("/engine/flush_cache", {"no_such": 1}).status == 400
    return metered.when(is_settled, "every request is counted")


def is_settled(scrape: Scrape) -> bool:
    # All of a request's latencies are observed at once; an older SGLang lacks the last one.
    counted = [sum(scrape.values(f"{name}_count")) >= n for name, n in [*LATENCIES.items()][:2]]
    return all(counted) and scrape.value(f"{OWN}requests_in_flight") == 0


def test_no_series_is_there_twice_and_each_has_its_help_and_type(busy: Scrape) -> None:
    assert faults(busy) == []


def test_our_own_names_follow_the_conventions_and_their_labels_are_bounded(busy: Scrape) -> None:
    assert own_faults(busy) == []


@pytest.mark.parametrize("name", LATENCIES)
def test_latencies_are_observed_once_per_request_although_no_server_of_sglang_runs(
    busy: Scrape, name: str
) -> None:
    assert busy.values(f"{name}_count", model_name=MODEL) == [LATENCIES[name]]
    assert busy.value(f"{name}_sum") > 0


def test_every_token_after_the_first_is_an_inter_token_latency(busy: Scrape) -> None:
    tokens = busy.value("sglang:generation_tokens_total")
    assert busy.value("sglang:inter_token_latency_seconds_count") == tokens - WHOLE - STREAMED


def test_series_of_the_schedulers_come_too_with_dynamos_labels(busy: Scrape) -> None:
    (running,) = (s for s in busy.samples if s.name == "sglang:num_running_reqs")
    assert running.labels["tp_rank"] == "0"
    endpoint = {"dynamo_namespace": "dynamo", "dynamo_component": "backend", "model": MODEL}
    assert endpoint.items() <= running.labels.items()
    (runtime,) = (
        sample
        for sample in busy.samples
        if sample.name == "dynamo_component_requests_total"
        and sample.labels["dynamo_endpoint"] == "generate"
    )
    assert running.labels["worker_id"] == runtime.labels["worker_id"]


@pytest.mark.compat
def test_our_own_series_say_what_happened(busy: Scrape) -> None:
    assert busy.value(f"{OWN}lifecycle_state", state="serving") == 1
    assert sum(busy.values(f"{OWN}lifecycle_state")) == 1
    assert busy.value(f"{OWN}registration_desired") == 1
    assert busy.value(f"{OWN}registration_confirmed", answer="yes") == 1
    # The refused request was admitted, too.
    assert busy.value(f"{OWN}requests_admitted_total") == WHOLE + STREAMED + 1
    assert busy.value(f"{OWN}requests_cancelled_total") == 0
    assert busy.value(f"{OWN}engine_up") == busy.value(f"{OWN}healthy") == 1
    assert 0 < busy.value(f"{OWN}model_load_seconds") < 600
    assert busy.value(f"{OWN}kv_blocks", dp_rank="0") > 1000
    path = "/engine/flush_cache"
    assert busy.value(f"{OWN}engine_route_calls_total", path=path, code="200") == 1
    assert busy.value(f"{OWN}engine_route_calls_total", path=path, code="400") == 1
    assert len(busy.values(f"{OWN}gc_pause_seconds_count")) == 3
    assert sum(busy.values(f"{OWN}scrape_errors_total")) == 0
    assert {s.labels["phase"] for s in busy.samples if "linear_attn_runner_info" in s.name} >= {
        "decode",
        "prefill",
        "verify",
    }


def test_the_page_lists_exactly_what_is_served(busy: Scrape) -> None:
    rows = re.findall(
        r"^\| `(?P<name>\w+)` \| (?P<kind>\w+) \|(?P<labels>[^|]*)\|",
        PAGE.read_text(),
        re.MULTILINE,
    )
    listed = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    own = {f.name: f for f in busy.families.values() if f.name.startswith(OWN)}
    own |= {n: f for n, f in busy.families.items() if n in listed}
    assert set(listed) == set(own)
    for name, family in own.items():
        seen = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert listed[name][0] == family.kind, name
        assert not family.samples or listed[name][1] == seen, name


def test_every_panel_and_every_alert_asks_for_series_that_exist(busy: Scrape) -> None:
    missing = {
        f"{where}: {name}"
        for where, expression in promql.expressions(MONITORING)
        for name in promql.parse(expression).metrics
        if name not in busy.sample_names
        # Not counted before the first error of the runtime's own.
        and name != "dynamo_component_errors_total"
    }
    assert missing == set()


def test_every_label_that_they_use_exists_on_their_series(busy: Scrape) -> None:
    known = {label for sample in busy.samples for label in sample.labels} | TARGET_LABELS
    # Of families without samples here.
    known |= {"error_type", "type", "fault", "reason", "stage"}
    for where, expression in promql.expressions(MONITORING):
        assert promql.parse(expression).labels <= known, where


# --- selection ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "dynamo_component_requests_total",
        f"{OWN}lifecycle_state",
        "sglang:time_to_first_token_seconds",
    ],
)
def test_name_selects_among_the_runtimes_ours_and_sglangs(
    metered: Metered, busy: Scrape, name: str
) -> None:
    selected = metered.scrape(f"?name[]={name}")
    assert set(selected.families) == {name}
    assert len(list(selected.samples)) == len(busy.families[name].samples)


def test_several_names_select_several_and_an_unknown_one_nothing(metered: Metered) -> None:
    both = metered.scrape(f"?name%5B%5D={OWN}engine_up&name%5B%5D=sglang:token_usage&name[]=nope")
    assert set(both.families) == {f"{OWN}engine_up", "sglang:token_usage"}
    assert metered.scrape("?name[]=nope").families == {}


# --- life -----------------------------------------------------------------------------------------


def test_a_client_that_hangs_up_is_counted(metered: Metered) -> None:
    stream = metered.stream(400)
    next(iter(stream))
    sent = "dynamo_component_response_bytes_total"
    before = metered.scrape().value(sent, dynamo_endpoint="generate")
    metered.when(
        # By this an alert tells a hung engine from one that works on long answers.
        lambda seen: seen.value(sent, dynamo_endpoint="generate") > before,
        "bytes are counted while the answer is under way",
    )
    assert metered.scrape().value(f"{OWN}requests_in_flight") == 1
    stream.close()
    metered.when(
        lambda seen: (
            seen.value(f"{OWN}requests_cancelled_total") == 1
            and seen.value(f"{OWN}requests_in_flight") == 0
        ),
        "the cancelled request is counted and gone",
    )


def test_a_drain_shows_what_it_waits_for_and_then_how_long_it_took(metered: Metered) -> None:
    stream = metered.stream(2000)
    next(iter(stream))
    assert metered.system.post("/engine/drain").status == 202
    waiting = metered.when(
        lambda seen: seen.value(f"{OWN}lifecycle_waiting", reason="dynamo_inflight") == 1,
        "the drain waits for the request",
    )
    assert waiting.value(f"{OWN}lifecycle_state", state="draining") == 1
    assert waiting.value(f"{OWN}drain_elapsed_seconds") > 0
    assert waiting.value(f"{OWN}requests_in_flight") == 1
    assert waiting.value(f"{OWN}engine_held_requests") == 1
    assert waiting.values(f"{OWN}unsent_response_bytes") != []
    assert waiting.value(f"{OWN}registration_desired") == 0
    assert waiting.value(f"{OWN}registration_confirmed", answer="no") == 1
    stream.close()
    drained = metered.when(
        lambda seen: seen.value(f"{OWN}lifecycle_state", state="drained") == 1, "drained"
    )
    assert drained.value(f"{OWN}drain_duration_seconds_count") == 1
    assert drained.value(f"{OWN}drain_duration_seconds_sum") > 0
    assert drained.value(f"{OWN}drain_elapsed_seconds") == 0
    spent = drained.values(f"{OWN}lifecycle_seconds_total", state="draining")
    assert sum(spent) == pytest.approx(drained.value(f"{OWN}drain_duration_seconds_sum"))
    assert metered.system.post("/engine/resume").status == 200
    assert metered.scrape().value(f"{OWN}lifecycle_state_entered_total", state="serving") == 2


def test_a_shutdown_shows_its_stage_and_takes_the_private_folder_with_it(metered: Metered) -> None:
    (folder,) = metered.folders()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = metered.scrape().value(f"{OWN}multiprocess_files")
    assert files == len(list(folder.glob("*.db"))) > 3
    stream = metered.stream(400)
    next(iter(stream))
    metered.worker.send(signal.SIGTERM)
    stopping = metered.when(
        lambda seen: sum(seen.values(f"{OWN}shutdown_stage_seconds", stage="finish requests")) > 0,
        "the shutdown waits for the request",
    )
    assert stopping.value(f"{OWN}lifecycle_state", state="stopping") == 1
    stream.close()
    assert metered.worker.wait_exit(60) == 0
    assert metered.folders() == []
