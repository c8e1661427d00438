"""Images through the frontend: natively, and by way of an encode worker.

What SGLang's own server answers to the same requests is asked once; every deployment must answer
the same.
"""

from __future__ import annotations

import base64
import http.client
import http.server
import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from tests.support.client import OpenAIClient, Reply
from tests.support.ports import free_port
from tests.support.processes import ManagedProcess
from tests.support.stack import NOT_UP_YET, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e
MODEL = "vlm"
SERVER = (sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1")
SERVER_FLAGS = (
    *("--device", "cpu", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--disable-cuda-graph", "--mem-fraction-static", "0.3", "--max-total-tokens", "8192"),
    *("--max-running-requests", "8", "--sleep-on-idle"),
)
QUIET = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "TORCHDYNAMO_DISABLE": "1"}
# NIXL without a network card.
NO_FABRIC = {"UCX_TLS": "tcp,sm,self", "DYN_MM_ALLOW_INTERNAL": "1"}
QUESTION = {"type": "text", "text": "what is this?"}


def picture(seed: int, width: int = 64, height: int = 48, form: str = "PNG") -> bytes:
    """Noise: no two are alike."""
    pixels = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, form)
    return target.getvalue()


def data_uri(content: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(content).decode()


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


A, B = data_uri(picture(1)), data_uri(picture(2))
WIDE = data_uri(picture(3, 200, 60))
CASES: dict[str, list[dict[str, Any]]] = {
    "text": [QUESTION],
    "one": [image(A), QUESTION],
    "other": [image(B), QUESTION],
    "wide": [QUESTION, image(WIDE)],
    "jpeg": [image(data_uri(picture(4, form="JPEG"))), QUESTION],
    "two": [image(A), QUESTION, image(B)],
    "twice": [image(A), image(A), QUESTION],
    "swapped": [image(WIDE), image(A), QUESTION],
}
FAULTY: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no image": ([image("data:image/png;base64,AAAA"), QUESTION], "image_url[0]"),
    "cut off": ([image(A), image(data_uri(picture(1, 300, 300)[:-30_000]))], "image_url[1]"),
    "a file": ([image("file:///etc/passwd")], "image_url[0]"),
    "too long": ([image(data_uri(picture(1, 400, 1)))], "aspect ratio"),
    "sound": ([{"type": "audio_url", "audio_url": {"url": A}}], "audio"),
    "placeholder": ([image(A), {"type": "text", "text": "<|image_pad|>"}], "placeholders"),
}


def ask(client: OpenAIClient, parts: list[dict[str, Any]], **options: Any) -> Reply:
    messages = [{"role": "user", "content": parts}]
    body = {"model": MODEL, "messages": messages, "max_tokens": 12, "temperature": 0, **options}
    return client.post("/v1/chat/completions", body)


def answer(reply: Reply) -> tuple[str, int, int]:
    """Text, prompt tokens (those of images counted), completion tokens."""
    assert reply.status == 200, reply.text
    body = reply.json()
    usage = body["usage"]
    text = str(body["choices"][0]["message"]["content"])
    return text, int(usage["prompt_tokens"]), int(usage["completion_tokens"])


def cached(reply: Reply) -> int:
    return int(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"])


def model_flags(checkpoint: Callable[[str], Path]) -> tuple[str, ...]:
    return ("--model-path", str(checkpoint("vlm")), "--served-model-name", MODEL)


@pytest.fixture(scope="module")
def expected(checkpoint: Callable[[str], Path]) -> dict[str, tuple[str, int, int]]:
    """SGLang's own server, gone again when this returns."""
    port = free_port()
    with Stack() as stack:
        command = [*SERVER, "--port", str(port), *model_flags(checkpoint), *SERVER_FLAGS]
        server = stack._start(ManagedProcess, [*command, "--enable-multimodal"], "server", QUIET)
        client = OpenAIClient(f"http://127.0.0.1:{port}")
        server.wait_for(
            lambda: client.get("/health_generate").status == 200,
            "SGLang's server answers",
            deadline_s=180,
            interval_s=0.5,
            ignore=NOT_UP_YET,
        )
        found = {name: answer(ask(client, parts)) for name, parts in CASES.items()}
    assert len({text for text, _, _ in found.values()}) == len(found), "the cases do not differ"
    return found


class Deployment:
    def __init__(self, stack: Stack, workers: dict[str, Worker], client: OpenAIClient) -> None:
        self.stack = stack
        self.workers = workers
        self.client = client

    def answers(self) -> dict[str, tuple[str, int, int]]:
        return {name: answer(ask(self.client, parts)) for name, parts in CASES.items()}

    def inflight(self, worker: str) -> float:
        system = self.workers[worker].system
        assert system is not None
        return sum(
            float(line.rpartition(" ")[2])
            for line in system.get("/metrics").text.splitlines()
            if line.startswith("dynamo_component_inflight_requests{")
            and 'dynamo_endpoint="generate"' in line
        )

    def check_faulty(self) -> None:
        """Each fault is a 400 that names it, and the worker serves on."""
        for name, (parts, named) in FAULTY.items():
            reply = ask(self.client, parts)
            assert reply.status == 400, f"{name}: {reply.text}"
            assert named in reply.json()["message"], f"{name}: {reply.text}"
        assert ask(self.client, [image(A)]).status == 200

    def check_cache(self) -> None:
        """The same image is found again; another one shares nothing from its place on."""
        parts = [image(data_uri(picture(50, 112, 112))), QUESTION]
        others = [image(data_uri(picture(51, 112, 112))), QUESTION]
        first, again, other = (ask(self.client, one) for one in (parts, parts, others))
        assert answer(first) == answer(again)
        prompt = answer(first)[1]
        before_image = cached(other)
        assert cached(again) == prompt - 1
        assert before_image < 8, "tokens of another image were taken from the cache"
        assert answer(other)[0] != answer(first)[0]


def deploy(
    checkpoint: Callable[[str], Path],
    *,
    frontend_environ: dict[str, str | None] | None = None,
    **flags: tuple[str, ...],
) -> Iterator[Deployment]:
    """A frontend, and one worker per keyword with these flags."""
    with Stack(environ=NO_FABRIC) as stack:
        frontend = stack.start_frontend(environ=frontend_environ)
        workers = {
            name: stack.start_worker(
                *model_flags(checkpoint), "--enable-multimodal", *more, name=name
            )
            for name, more in flags.items()
        }
        for worker in workers.values():
            stack.wait_ready(worker, deadline_s=180)
        frontend.wait_for_model(MODEL, deadline_s=60)
        yield Deployment(stack, workers, frontend.client)


class PictureServer(http.server.BaseHTTPRequestHandler):
    # Set once somebody asks for the picture that never comes; and once it may be given up.
    asked, end = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        if self.path == "/never.png":
            self.asked.set()
            self.end.wait()
            return
        content = picture(1)
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


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
    def deployed(self, checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
        yield from deploy(checkpoint, native=())

    def test_it_answers_as_sglangs_own_server(
        self, deployed: Deployment, expected: dict[str, tuple[str, int, int]]
    ) -> None:
        assert deployed.answers() == expected

    def test_an_image_behind_a_url_is_the_same_image(
        self, deployed: Deployment, expected: dict[str, tuple[str, int, int]], pictures: str
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
        assert deployed.inflight("native") == 1
        connection.close()
        wait_until(
            lambda: deployed.inflight("native") == 0, "the request is let go of", deadline_s=20
        )

    def test_the_end_leaves_nothing(self, deployed: Deployment) -> None:
        assert deployed.workers["native"].stop() == 0


class TestPrefillAndDecode:
    """The same on two workers: KV caches go over, positions of the image included."""

    @pytest.fixture(scope="class")
    def deployed(self, checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
        split = ("--disaggregation-transfer-backend", "nixl", "--disaggregation-mode")
        yield from deploy(checkpoint, prefill=(*split, "prefill"), decode=(*split, "decode"))

    def test_they_answer_as_sglangs_own_server(
        self, deployed: Deployment, expected: dict[str, tuple[str, int, int]]
    ) -> None:
        assert deployed.answers() == expected

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
        self, deployed: Deployment, expected: dict[str, tuple[str, int, int]]
    ) -> None:
        assert deployed.answers() == expected

    def test_faults_of_the_media_are_400_and_named(self, deployed: Deployment) -> None:
        deployed.check_faulty()

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


@pytest.mark.long
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
        self, deployed: Deployment, expected: dict[str, tuple[str, int, int]]
    ) -> None:
        assert deployed.answers() == expected


@pytest.mark.long
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
        self, deployed: Deployment, expected: dict[str, tuple[str, int, int]]
    ) -> None:
        assert deployed.answers() == expected


@pytest.mark.long
@pytest.mark.parametrize("mode", ["nixl-write", "nixl-read"])
def test_embeddings_go_through_nixl(
    checkpoint: Callable[[str], Path], expected: dict[str, tuple[str, int, int]], mode: str
) -> None:
    flags = ("--embedding-transfer-mode", mode, "--disaggregation-mode")
    for deployed in deploy(
        checkpoint, encode=(*flags, "encode"), pd=("--dedicated-mm-encoder", *flags, "pd")
    ):
        assert deployed.answers() == expected
