"""The hooks fit the installed SGLang, whichever supported version it is; no engine needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.compat]

# In a process of its own: the hooks patch SGLang for good. The CPU platform stays off, because it
# runs on the locked SGLang alone.
PROGRAM = """
import json
from sglang_worker.engine.compat import check_version
from sglang_worker.runners import hooks, parity
from sglang_worker.runners.records import RankIdentity

check_version()
runner_hooks = hooks.RunnerHooks(RankIdentity(0, 0, 0, 0), None, True)
hooks.install(runner_hooks)
models = parity.registry()
print(json.dumps({
    "missing": [h.target for h in runner_hooks.table() if not hooks._exists(h.target)],
    "optional": sorted(hooks.OPTIONAL_TARGETS),
    "pairs": len(parity.pairs(models)),
    "broken": [f.sentence for f in parity.audit(models) if f.exempted is None],
}))
"""


def test_every_hook_applies_and_no_registered_pair_is_broken() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "DYN_SGL_REFERENCE_PLATFORM": "off", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert set(found["missing"]) <= set(found["optional"])
    assert found["pairs"] >= 20
    assert found["broken"] == []
