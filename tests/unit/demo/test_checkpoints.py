"""The demo checkpoints: complete, small, the same every time, one vocabulary."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from sglang_worker.demo import checkpoints, configs
from sglang_worker.demo.checkpoints import MARKER, NAMES, WEIGHTS_FOLDER, ensure, main
from sglang_worker.demo.vocabulary import TOKEN_IDS, TOKENIZER_FILE, VOCABULARY_SIZE
from sglang_worker.errors import ConfigError

TEXT_MODELS = ("gdn", "dense", "kda", "embedding")
FILES = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors",
    MARKER,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return ensure(tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_has_every_file_an_engine_reads(made: dict[str, Path], name: str) -> None:
    assert {path.name for path in made[name].iterdir()} >= FILES
    weights = load_file(made[name] / "model.safetensors")
    assert all(tensor.dtype == np.float32 for tensor in weights.values())
    assert all(np.isfinite(tensor).all() for tensor in weights.values())


def test_the_committed_weights_are_small_and_float16() -> None:
    files = sorted(WEIGHTS_FOLDER.iterdir())
    assert sum(path.stat().st_size for path in files) < 8_000_000
    assert all(t.dtype == np.float16 for path in files for t in load_file(path).values())


def test_the_text_models_share_one_vocabulary(made: dict[str, Path]) -> None:
    tokenizers = {(made[name] / "tokenizer.json").read_bytes() for name in NAMES}
    assert tokenizers == {TOKENIZER_FILE.read_bytes()}
    for name in TEXT_MODELS:
        weights = load_file(made[name] / "model.safetensors")
        assert weights["model.embed_tokens.weight"].shape[0] == VOCABULARY_SIZE
        assert weights["lm_head.weight"].shape[0] == VOCABULARY_SIZE


def test_special_tokens_have_the_ids_that_the_configurations_name() -> None:
    content = json.loads(TOKENIZER_FILE.read_text())
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    assert added == TOKEN_IDS
    assert len(content["model"]["vocab"]) == VOCABULARY_SIZE


def test_the_target_carries_its_mtp_head(made: dict[str, Path]) -> None:
    names = set(load_file(made["gdn"] / "model.safetensors"))
    assert {"mtp.fc.weight", "mtp.norm.weight", "mtp.layers.0.self_attn.q_proj.weight"} <= names


def test_layer_kinds_are_what_the_names_say(made: dict[str, Path]) -> None:
    gdn, kda = (set(load_file(made[name] / "model.safetensors")) for name in ("gdn", "kda"))
    assert sum(name.endswith("linear_attn.A_log") for name in gdn) == 3
    kda_layers = configs.KDA["linear_attn_config"]["kda_layers"]
    assert sum(name.endswith("self_attn.A_log") for name in kda) == len(kda_layers)


def test_two_runs_write_the_same_bytes(made: dict[str, Path], tmp_path: Path) -> None:
    again = ensure(tmp_path, ["gdn", "vlm"])
    for name, folder in again.items():
        for path in folder.iterdir():
            assert path.read_bytes() == (made[name] / path.name).read_bytes(), path


def test_a_second_call_changes_nothing(made: dict[str, Path]) -> None:
    folder = made["dense"]
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    ensure(folder.parent, ["dense"])
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_checkpoint_of_another_version_is_replaced(tmp_path: Path) -> None:
    folder = ensure(tmp_path, ["dense"])["dense"]
    (folder / MARKER).write_text('{"fingerprint": "older"}')
    (folder / "leftover").touch()
    ensure(tmp_path, ["dense"])
    assert not (folder / "leftover").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["dense"]


def test_an_interrupted_run_leaves_no_half_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(checkpoints, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        ensure(tmp_path, ["dense"])
    assert list(tmp_path.iterdir()) == []


def test_someone_elses_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "gdn").mkdir()
    (tmp_path / "gdn" / "precious").touch()
    with pytest.raises(ConfigError, match="no demo checkpoint"):
        ensure(tmp_path, ["gdn"])
    assert (tmp_path / "gdn" / "precious").exists()


def test_an_unknown_name_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "new"), "dense", "huge"]) == 2
    assert "'huge'" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_two_processes_may_make_the_same_checkpoint(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sglang_worker.demo.checkpoints", str(tmp_path), "gdn"]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["gdn"]


def test_making_checkpoints_needs_neither_torch_nor_an_engine(tmp_path: Path) -> None:
    code = (
        "import sys; from sglang_worker.demo.checkpoints import ensure;"
        f"ensure({str(tmp_path)!r}, ['dense']);"
        "print(sorted({'torch', 'transformers', 'sglang', 'dynamo'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
