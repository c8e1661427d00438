"""Sound through the frontend to native multimodal workers, with a model that listens.

The model is of Qwen2-Audio's shape. What SGLang's own server answers to the same requests is asked
once; every deployment must answer the same.
"""

from __future__ import annotations

import base64
import http.server
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.multimodal_deployment import QUESTION, Deployment, answer, ask, cached, deploy
from tests.e2e.multimodal_deployment import model_flags as flags_of
from tests.e2e.sound_requests import FAULTY_SOUND, SOUND_CASES, S, T, clip, sound
from tests.support.audio_model import write_audio_model
from tests.support.client import OpenAIClient
from tests.support.ports import free_port
from tests.support.processes import ManagedProcess
from tests.support.stack import NOT_UP_YET, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.long]
SERVER = (sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1")
SERVER_FLAGS = (
    *("--device", "cpu", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--disable-cuda-graph", "--mem-fraction-static", "0.3", "--max-total-tokens", "8192"),
    *("--max-running-requests", "8", "--sleep-on-idle"),
)
QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCHDYNAMO_DISABLE": "1"}
Answers = dict[str, tuple[str, int, int]]


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Stands where other deployments look a checkpoint up by name."""
    folder = write_audio_model(tmp_path_factory.mktemp("audio") / "model")
    return lambda _: folder


@pytest.fixture(scope="module")
def expected(listening: Callable[[str], Path]) -> Answers:
    """From SGLang's own server, gone again when this returns."""
    port = free_port()
    with Stack() as stack:
        command = [*SERVER, "--port", str(port), *flags_of(listening), *SERVER_FLAGS]
        server = stack._start(ManagedProcess, [*command, "--enable-multimodal"], "server", QUIET)
        client = OpenAIClient(f"http://127.0.0.1:{port}")
        server.wait_for(
            lambda: client.get("/health_generate").status == 200,
            "SGLang's server answers",
            deadline_s=180,
            interval_s=0.5,
            ignore=NOT_UP_YET,
        )
        found = {name: answer(ask(client, parts)) for name, parts in SOUND_CASES.items()}
    assert len({text for text, _, _ in found.values()}) == len(found), "the cases do not differ"
    return found


class Clips(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(S)))
        self.end_headers()
        self.wfile.write(S)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def clips() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Clips)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/clip.wav"
    server.shutdown()
    thread.join()
    server.server_close()


class TestNative:
    @pytest.fixture(scope="class")
    def deployed(self, listening: Callable[[str], Path]) -> Iterator[Deployment]:
        yield from deploy(listening, native=())

    def test_it_answers_as_sglangs_own_server(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        assert deployed.answers(SOUND_CASES) == expected

    def test_a_clip_behind_a_url_is_the_same_clip(
        self, deployed: Deployment, expected: Answers, clips: str
    ) -> None:
        part = {"type": "audio_url", "audio_url": {"url": clips}}
        assert answer(ask(deployed.client, [part, QUESTION])) == expected["sound"]

    @pytest.mark.parametrize("name", list(FAULTY_SOUND))
    def test_a_fault_is_a_400_that_names_the_part(self, deployed: Deployment, name: str) -> None:
        parts, named = FAULTY_SOUND[name]
        reply = ask(deployed.client, parts)
        assert reply.status == 400, reply.text
        assert named in reply.json()["message"]
        assert ask(deployed.client, [sound(S)], max_tokens=1).status == 200

    def test_the_prefix_cache_knows_clips_apart(self, deployed: Deployment) -> None:
        parts, others = [sound(clip(50, 2)), QUESTION], [sound(clip(51, 2)), QUESTION]
        first, again, other = (ask(deployed.client, one) for one in (parts, parts, others))
        assert answer(first) == answer(again)
        assert cached(again) == answer(first)[1] - 1
        assert cached(other) < 8, "tokens of another clip were taken from the cache"
        assert answer(other)[0] != answer(first)[0]

    def test_sound_as_openais_clients_send_it_is_lost_in_the_frontend(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        """Alone nothing of it reaches the worker; beside other media its absence is seen."""
        data = base64.b64encode(T).decode()
        part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
        assert answer(ask(deployed.client, [part, QUESTION])) == expected["text"]
        reply = ask(deployed.client, [sound(S), part, QUESTION])
        assert reply.status == 400, reply.text
        assert "send the clip as audio_url" in reply.json()["message"]


class TestPrefillAndDecode:
    @pytest.fixture(scope="class")
    def deployed(self, listening: Callable[[str], Path]) -> Iterator[Deployment]:
        split = ("--disaggregation-transfer-backend", "nixl", "--disaggregation-mode")
        yield from deploy(listening, prefill=(*split, "prefill"), decode=(*split, "decode"))

    def test_they_answer_as_sglangs_own_server(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        assert deployed.answers(SOUND_CASES) == expected
