"""Pipelines that take an image, behind the real frontend, on SGLang's real generator on the CPU.

One of FLUX.2 klein's shape makes an image with or without another one, one of Wan 2.1's makes a
video of an image and nothing without. What the same generator makes of the same image and seed
without a worker is asked once.
"""

from __future__ import annotations

import base64
import http.server
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.e2e.multimodal_deployment import data_uri, picture
from tests.support import bare_generator
from tests.support.client import Reply
from tests.support.image_taking_models import write_image_taking_models
from tests.support.stack import Frontend, Stack, Worker

pytestmark = [pytest.mark.e2e, pytest.mark.long]

GENERATIONS, EDITS, VIDEOS = "/v1/images/generations", "/v1/images/edits", "/v1/videos"
A, B = picture(1, 64, 64), picture(2, 96, 64)
EDIT: dict[str, Any] = {
    "model": "editor",
    "prompt": "the same in red",
    "size": "64x64",
    "response_format": "b64_json",
    "nvext": {"num_inference_steps": 2, "seed": 3},
}
CLIP: dict[str, Any] = {
    "model": "animator",
    "prompt": "it moves",
    "size": "64x64",
    "response_format": "b64_json",
    "nvext": {"num_inference_steps": 2, "num_frames": 5, "fps": 8, "seed": 3},
}
EDITED = {
    "prompt": "the same in red",
    "num_inference_steps": 2,
    "seed": 3,
    "width": 64,
    "height": 64,
}
BARE: dict[str, dict[str, Any]] = {
    "editor": EDITED,
    "animator": {**EDITED, "prompt": "it moves", "num_frames": 5, "fps": 8},
}


class Pictures(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(A)))
        self.end_headers()
        self.wfile.write(A)

    def log_message(self, *_: Any) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def picture_url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/picture.png"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_image_taking_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def bare(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Pixels by model and image ("a", "b"; "none" where that is possible)."""
    folder = tmp_path_factory.mktemp("bare")
    images = {"a": folder / "a.png", "b": folder / "b.png"}
    images["a"].write_bytes(A)
    images["b"].write_bytes(B)
    found = {}
    for model, fields in BARE.items():
        requests = {name: {**fields, "image_path": str(path)} for name, path in images.items()}
        if model == "editor":
            requests["none"] = fields
        made = bare_generator.generate(models[model], folder / model, requests)
        found |= {f"{model} {name}": pixels(content) for name, content in made.items()}
    return found


class Deployment(msgspec.Struct, frozen=True):
    frontend: Frontend
    workers: dict[str, Worker]

    def ask(self, path: str, body: dict[str, Any]) -> Reply:
        return self.frontend.client.request("POST", path, body)

    def made(self, path: str, body: dict[str, Any], reference: str | None = None) -> Any:
        """Pixels of a good answer, (frames, height, width, 3)."""
        given = {} if reference is None else {"input_reference": reference}
        reply = self.ask(path, {**body, **given})
        assert reply.status == 200, reply.text
        return pixels(base64.b64decode(reply.json()["data"][0]["b64_json"]))


@pytest.fixture(scope="module")
def deployment(models: dict[str, Path], bare: dict[str, Any]) -> Iterator[Deployment]:
    flags = {"editor": "--image-diffusion-worker", "animator": "--video-generation-worker"}
    with Stack() as stack:
        workers = {
            kind: stack.start_worker(
                *("--model-path", str(models[kind]), "--served-model-name", kind, flag),
                *("--endpoint", f"dynamo.{kind}.generate"),
                name=kind,
                # The other one fetches from public addresses alone.
                environ={"DYN_MM_ALLOW_INTERNAL": "1"} if kind == "editor" else {},
            )
            for kind, flag in flags.items()
        }
        frontend = stack.start_frontend(environ={"DYN_MM_ALLOW_INTERNAL": "1"})
        for kind, worker in workers.items():
            stack.wait_ready(worker, deadline_s=300)
            frontend.wait_for_model(kind)
        yield Deployment(frontend, workers)


def pixels(content: bytes) -> Any:
    import imageio.v3

    if content.startswith(b"\x89PNG"):
        return imageio.v3.imread(io.BytesIO(content), extension=".png")[None, ..., :3]
    return imageio.v3.imread(io.BytesIO(content), extension=".mp4", plugin="FFMPEG")


class TestEditor:
    """An image may be given."""

    @pytest.mark.parametrize(("name", "image"), [("a", A), ("b", B)])
    def test_an_image_guides_as_it_guides_the_bare_generator(
        self, deployment: Deployment, bare: dict[str, Any], name: str, image: bytes
    ) -> None:
        made = deployment.made(GENERATIONS, EDIT, data_uri(image))
        assert made.shape == (1, 64, 64, 3)
        assert np.array_equal(made, bare[f"editor {name}"])

    def test_without_one_it_makes_another(
        self, deployment: Deployment, bare: dict[str, Any]
    ) -> None:
        made = deployment.made(GENERATIONS, EDIT)
        assert np.array_equal(made, bare["editor none"])
        others = [bare["editor a"], bare["editor b"]]
        assert not any(np.array_equal(made, other) for other in others)
        assert not np.array_equal(*others)

    def test_an_image_behind_a_url_and_at_the_route_for_edits_is_the_same(
        self, deployment: Deployment, bare: dict[str, Any], picture_url: str
    ) -> None:
        made = deployment.made(EDITS, EDIT, picture_url)
        assert np.array_equal(made, bare["editor a"])

    def test_the_route_for_edits_needs_one(self, deployment: Deployment) -> None:
        reply = deployment.ask(EDITS, EDIT)
        assert reply.status == 400
        assert "input_reference is required" in reply.json()["message"]

    @pytest.mark.parametrize(
        ("reference", "said"),
        [
            ("data:image/png;base64,AAAA", "input_reference: is not an image"),
            (data_uri(picture(1, 300, 300)[:-30_000]), "input_reference: its content is damaged"),
            (data_uri(picture(1, 8, 8)), "input_reference: its sides must have at least 32"),
            ("/etc/passwd", "input_reference: is neither a data URI nor"),
            ("file:///etc/passwd", "input_reference: is neither a data URI nor"),
            ("  ", "input_reference: must not be empty"),
        ],
    )
    def test_what_is_no_image_is_a_400_that_names_the_field(
        self, deployment: Deployment, reference: str, said: str
    ) -> None:
        reply = deployment.ask(GENERATIONS, {**EDIT, "input_reference": reference})
        assert reply.status == 400, reply.text
        assert said in reply.json()["message"]


class TestAnimator:
    """An image must be given."""

    def test_a_video_of_an_image_is_the_bare_generators(
        self, deployment: Deployment, bare: dict[str, Any]
    ) -> None:
        made = deployment.made(VIDEOS, CLIP, data_uri(A))
        assert made.shape == (5, 64, 64, 3)
        assert np.array_equal(made, bare["animator a"])

    def test_of_another_image_it_is_another(
        self, deployment: Deployment, bare: dict[str, Any]
    ) -> None:
        """With the image's proportions and about the area that was asked for."""
        made = deployment.made(VIDEOS, CLIP, data_uri(B))
        assert np.array_equal(made, bare["animator b"])
        assert made.shape == (5, 48, 64, 3)

    def test_without_one_it_is_a_400_that_names_the_field(self, deployment: Deployment) -> None:
        reply = deployment.ask(VIDEOS, CLIP)
        assert reply.status == 400, reply.text
        assert "input_reference: this model needs an image" in reply.json()["message"]

    def test_private_addresses_are_not_fetched_from(
        self, deployment: Deployment, picture_url: str
    ) -> None:
        reply = deployment.ask(VIDEOS, {**CLIP, "input_reference": picture_url})
        assert reply.status == 400, reply.text
        assert "input_reference" in reply.json()["message"]


def test_nothing_is_left_of_the_images(deployment: Deployment) -> None:
    for worker in deployment.workers.values():
        assert worker.stop() == 0
        worker.check_nothing_left()
