"""What SGLang's DiffGenerator makes of some requests without a worker around it.

In a process of its own: ``python -m tests.support.bare_generator MODEL FOLDER`` reads a list of
``{"name": …, "fields": …}`` from its input, the fields being the generator's own, and leaves
``FOLDER/<name>`` with whatever ending the output has. Kernels and precision are the CPU platform's.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.environment import REPOSITORY, clean_environment, with_repository_on_path


def generate(model: Path, folder: Path, requests: Mapping[str, dict[str, Any]]) -> dict[str, bytes]:
    """The finished file of each request, by its name."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [{"name": name, "fields": fields} for name, fields in requests.items()]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.bare_generator", str(model), str(folder)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=REPOSITORY,
        env=with_repository_on_path(clean_environment()),
    )
    found = {path.stem: path.read_bytes() for path in folder.iterdir() if path.stem in requests}
    assert len(found) == len(requests), f"exit {done.returncode}: {done.stdout}{done.stderr}"
    return found


def main(model: str, folder: Path) -> None:
    from sglang_worker.engine import compat_diffusion, compat_diffusion_process
    from sglang_worker.engine.children import kill_trees
    from sglang_worker.engine.step_board import StepBoard

    from tests.support.ports import free_port

    board = folder / "board"
    StepBoard.create(board, 1).close()
    ports = {name: free_port() for name in ("port", "scheduler_port", "master_port")}
    server_args = compat_diffusion.server_arguments({"model_path": model, **ports})
    entry = functools.partial(
        compat_diffusion_process.run, str(board), 1, compat_diffusion.lacks_fused_norms(), True
    )
    generator = compat_diffusion.start_generator(server_args, entry, quiet=True)
    fixed = {
        "output_path": str(folder / "made"),
        "save_output": True,
        "return_file_paths_only": True,
    }
    for one in json.load(sys.stdin):
        (output,) = generator.generate({**one["fields"], **fixed})
        made = Path(output.path)
        made.rename(folder / f"{one['name']}{made.suffix}")
    kill_trees(list(generator.process_names))
    generator.forget_processes()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
