"""Requests with images, and deployments that answer them; for `test_multimodal`."""

from __future__ import annotations

import base64
import http.server
import io
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.support.client import OpenAIClient, Reply
from tests.support.stack import Stack, Worker

MODEL = "vlm"
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


class Deployment:
    def __init__(self, stack: Stack, workers: dict[str, Worker], client: OpenAIClient) -> None:
        self.stack = stack
        self.workers = workers
        self.client = client

    def answers(
        self, cases: dict[str, list[dict[str, Any]]] = CASES
    ) -> dict[str, tuple[str, int, int]]:
        return {name: answer(ask(self.client, parts)) for name, parts in cases.items()}

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
        frontend = stack.start_frontend(environ=frontend_environ, ready=False)
        workers = {
            name: stack.start_worker(
                *model_flags(checkpoint), "--enable-multimodal", *more, name=name
            )
            for name, more in flags.items()
        }
        for worker in workers.values():
            stack.wait_ready(worker, deadline_s=180)
        frontend.wait_for_model(MODEL, deadline_s=60)
        # A frontend lists prefill and decode before its router between the two is up, and answers
        # 503 until then.
        frontend.wait_for(
            lambda: ask(frontend.client, [QUESTION], max_tokens=1).status == 200,
            "the model answers",
            deadline_s=60,
        )
        yield Deployment(stack, workers, frontend.client)


class PictureServer(http.server.BaseHTTPRequestHandler):
    """A picture, and `/never.png`, of which a frontend gets the beginning and a worker nothing.

    A frontend asks for the first bytes of each image, whose size it reads there, and lets the
    worker hear of the request once they have come or 10 s have passed.
    """

    # Set once a worker asks for the picture that never comes; and once it may be given up.
    asked, end = threading.Event(), threading.Event()

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        if self.path == "/never.png" and wanted is None:
            self.asked.set()
            self.end.wait()
            return
        whole = picture(1)
        last = len(whole) - 1
        if wanted is not None:
            last = min(last, int(wanted.removeprefix("bytes=0-")))
        self.send_response(200 if wanted is None else 206)
        self.send_header("Content-Length", str(last + 1))
        if wanted is not None:
            self.send_header("Content-Range", f"bytes 0-{last}/{len(whole)}")
        self.end_headers()
        self.wfile.write(whole[: last + 1])

    def log_message(self, *_: Any) -> None:
        """Quiet."""
