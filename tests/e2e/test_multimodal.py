"""Images through the frontend: natively, and by way of an encode worker.

What SGLang's own server answers to the same requests is asked once; every deployment must answer
the same.
"""

from __future__ import annotations

import functools
import http.client
import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from tests.e2e.multimodal_deployment import (
    CASES,
    FAULTY,
    MODEL,
    QUESTION,
    A,
    Deployment,
    PictureServer,
    answer,
    ask,
    deploy,
    image,
    model_flags,
)
from tests.e2e.video_requests import CUT_OFF, VIDEO_CASES
from tests.support.client import OpenAIClient
from tests.support.ports import free_port
from tests.support.processes import ManagedProcess
from tests.support.stack import NOT_UP_YET, Stack
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
SERVER = (sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1")
SERVER_FLAGS = (
    *("--device", "cpu", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--disable-cuda-graph", "--mem-fraction-static", "0.3", "--max-total-tokens", "8192"),
    *("--max-running-requests", "8", "--sleep-on-idle"),
)
QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCHDYNAMO_DISABLE": "1"}


Answers = dict[str, tuple[str, int, int]]


class Sglang:
    """SGLang's own server, which ends once it has been asked everything."""

    def __init__(self, stack: Stack, flags: tuple[str, ...]) -> None:
        port = free_port()
        command = [*SERVER, "--port", str(port), *flags, *SERVER_FLAGS, "--enable-multimodal"]
        self._server = stack._start(ManagedProcess, command, "server", QUIET)
        self._client = OpenAIClient(f"http://127.0.0.1:{port}")

    @functools.cached_property
    def answers(self) -> Answers:
        self._server.wait_for(
            lambda: self._client.get("/health_generate").status == 200,
            "SGLang's server answers",
            deadline_s=180,
            interval_s=0.5,
            ignore=NOT_UP_YET,
        )
        asked = CASES | VIDEO_CASES
        found = {name: answer(ask(self._client, parts)) for name, parts in asked.items()}
        self._server.stop()
        return found

    def end(self) -> None:
        """Nobody may have asked. Told to end while it starts, it leaves its scheduler behind, which
        sends SIGQUIT to its parent when it finds itself alone: pytest, by then."""
        self._server.kill()


@pytest.fixture(scope="module")
def sglang(checkpoint: Callable[[str], Path]) -> Iterator[Sglang]:
    """Started here and waited for when its answers are wanted: the first deployment starts beside
    it."""
    with Stack() as stack:
        server = Sglang(stack, model_flags(checkpoint))
        yield server
        server.end()


# For each test anew: what is wanted for a whole module is made before the deployment of a class.
@pytest.fixture
def expected(sglang: Sglang) -> Answers:
    """To the requests that every deployment takes."""
    found = {name: sglang.answers[name] for name in CASES}
    assert len({text for text, _, _ in found.values()}) == len(found), "the cases do not differ"
    return found


@pytest.fixture
def expected_of_videos(sglang: Sglang) -> Answers:
    return {name: sglang.answers[name] for name in VIDEO_CASES}


@pytest.fixture(scope="module")
def pictures() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PictureServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    PictureServer.end.set()
    server.shutdown()
    thread.join()
    server.server_close()


class TestNative:
    """`--enable-multimodal`: SGLang encodes."""

    @pytest.fixture(scope="class")
    def deployed(self, checkpoint: Callable[[str], Path], sglang: Sglang) -> Iterator[Deployment]:
        yield from deploy(checkpoint, native=())

    def test_it_answers_as_sglangs_own_server(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        assert deployed.answers() == expected

    def test_it_answers_about_videos_as_sglangs_own_server(
        self, deployed: Deployment, expected_of_videos: Answers
    ) -> None:
        assert deployed.answers(VIDEO_CASES) == expected_of_videos

    def test_a_faulty_video_is_a_400_and_named(self, deployed: Deployment) -> None:
        reply = ask(deployed.client, CUT_OFF)
        assert reply.status == 400, reply.text
        assert reply.json()["message"] == "video_url[1]: cannot be decoded as video"

    def test_an_image_behind_a_url_is_the_same_image(
        self, deployed: Deployment, expected: Answers, pictures: str
    ) -> None:
        assert (
            answer(ask(deployed.client, [image(f"{pictures}/picture.png"), QUESTION]))
            == expected["one"]
        )

    def test_faults_of_the_media_are_400_and_named(self, deployed: Deployment) -> None:
        deployed.check_faulty()

    def test_the_prefix_cache_knows_images_apart(self, deployed: Deployment) -> None:
        deployed.check_cache()

    def test_a_client_that_hangs_up_during_a_download_leaves_nothing(
        self, deployed: Deployment, pictures: str
    ) -> None:
        messages = [{"role": "user", "content": [image(f"{pictures}/never.png")]}]
        address = urlsplit(deployed.client.base_url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port)
        body = json.dumps({"model": MODEL, "messages": messages})
        connection.request(
            "POST", "/v1/chat/completions", body, {"Content-Type": "application/json"}
        )
        wait_until(PictureServer.asked.is_set, "the worker asks for the picture", deadline_s=20)
        wait_until(
            lambda: deployed.inflight("native") == 1, "the request is in flight", deadline_s=20
        )
        connection.close()
        wait_until(
            lambda: deployed.inflight("native") == 0, "the request is let go of", deadline_s=20
        )

    def test_it_drains_for_nothing_of_the_faulty_requests_is_left_in_sglang(
        self, deployed: Deployment
    ) -> None:
        worker = deployed.workers["native"]
        system = worker.system
        assert system is not None
        assert system.post("/engine/drain").status in (200, 202)
        wait_until(
            lambda: system.get("/engine/status").json()["state"] == "drained",
            "the worker is drained",
            deadline_s=30,
        )
        assert worker.stop() == 0


class TestPrefillAndDecode:
    """The same on two workers: KV caches go over, positions of the image included."""

    @pytest.fixture(scope="class")
    def deployed(self, checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
        split = ("--disaggregation-transfer-backend", "nixl", "--disaggregation-mode")
        yield from deploy(checkpoint, prefill=(*split, "prefill"), decode=(*split, "decode"))

    def test_they_answer_as_sglangs_own_server(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        assert deployed.answers() == expected

    def test_they_answer_about_videos_as_sglangs_own_server(
        self, deployed: Deployment, expected_of_videos: Answers
    ) -> None:
        assert deployed.answers(VIDEO_CASES) == expected_of_videos

    def test_a_faulty_image_is_a_400_and_named(self, deployed: Deployment) -> None:
        parts, named = FAULTY["cut off"]
        reply = ask(deployed.client, parts)
        assert reply.status == 400
        assert named in reply.json()["message"]
        assert ask(deployed.client, [image(A)]).status == 200


class TestEncodeWorker:
    """An encode worker in front, an internal worker behind it."""

    @pytest.fixture(scope="class")
    def deployed(self, checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
        local = ("--embedding-transfer-mode", "local", "--disaggregation-mode")
        yield from deploy(
            checkpoint, encode=(*local, "encode"), pd=("--dedicated-mm-encoder", *local, "pd")
        )

    def test_it_answers_as_sglangs_own_server(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        assert deployed.answers() == expected

    def test_faults_of_the_media_are_400_and_named(self, deployed: Deployment) -> None:
        deployed.check_faulty()

    def test_a_video_is_refused(self, deployed: Deployment) -> None:
        reply = ask(deployed.client, VIDEO_CASES["video"])
        assert reply.status == 400, reply.text
        assert "a part of type video_url" in reply.json()["message"]

    def test_what_the_internal_worker_refuses_keeps_its_name(self, deployed: Deployment) -> None:
        reply = ask(deployed.client, [image(A), QUESTION], max_tokens=100_000)
        assert reply.status == 400
        assert "max_tokens" in reply.json()["message"]

    def test_the_prefix_cache_knows_images_apart(self, deployed: Deployment) -> None:
        deployed.check_cache()

    def test_no_lifecycle_route_exists(self, deployed: Deployment) -> None:
        for worker in deployed.workers.values():
            assert worker.system is not None
            assert worker.system.post("/engine/drain").status == 404

    def test_a_lost_internal_worker_is_a_503_and_not_the_clients_fault(
        self, deployed: Deployment
    ) -> None:
        deployed.workers["pd"].kill()
        reply = ask(deployed.client, [image(A), QUESTION])
        assert reply.status == 503, reply.text

    def test_the_end_leaves_nothing(self, deployed: Deployment) -> None:
        assert deployed.workers["encode"].stop() == 0


class TestFrontendDecoding:
    """`--frontend-decoding`: pixels come from the frontend, whose library must find NIXL."""

    @pytest.fixture(scope="class")
    def deployed(self, checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
        libraries = str(
            next(Path(np.__file__).parents[1].glob(".nixl*.libs/libnixl_capi.so")).parent
        )
        found: dict[str, str | None] = {
            "LD_LIBRARY_PATH": libraries,
            "NIXL_PLUGIN_DIR": f"{libraries}/plugins",
        }
        yield from deploy(checkpoint, frontend_environ=found, native=("--frontend-decoding",))

    def test_it_answers_as_sglangs_own_server(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        assert deployed.answers() == expected


class TestEncodeWorkerWithPrefillAndDecode:
    """An encode worker, and behind it prefill and decode on their own."""

    @pytest.fixture(scope="class")
    def deployed(self, checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
        local = ("--embedding-transfer-mode", "local", "--disaggregation-mode")
        split = ("--dedicated-mm-encoder", "--disaggregation-transfer-backend", "nixl", *local)
        yield from deploy(
            checkpoint,
            encode=(*local, "encode"),
            prefill=(*split, "prefill"),
            decode=(*split, "decode"),
        )

    def test_they_answer_as_sglangs_own_server(
        self, deployed: Deployment, expected: Answers
    ) -> None:
        assert deployed.answers() == expected


@pytest.mark.parametrize("mode", ["nixl-write", "nixl-read"])
def test_embeddings_go_through_nixl(
    checkpoint: Callable[[str], Path], expected: Answers, mode: str
) -> None:
    flags = ("--embedding-transfer-mode", mode, "--disaggregation-mode")
    for deployed in deploy(
        checkpoint, encode=(*flags, "encode"), pd=("--dedicated-mm-encoder", *flags, "pd")
    ):
        assert deployed.answers() == expected
