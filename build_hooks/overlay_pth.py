"""Hatchling hook: ships the ``.pth`` line that lets our ``dynamo.sglang`` win over upstream's.

The line runs inside ``site.addpackage``, whose local ``sitedir`` names the site-packages folder
being processed. The overlay goes directly in front of it, so PYTHONPATH still wins; a PYTHONPATH
that names site-packages itself asks for upstream's worker and gets it. A wheel finds the overlay
below ``sitedir``; an editable install gets the checkout's absolute path.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PTH_NAME = "sglang_worker_overlay.pth"
LINE = (
    "import os, sys; _s = sys._getframe(1).f_locals.get('sitedir'); _o = {overlay}; "
    "_p = '' if sys.flags.ignore_environment else os.environ.get('PYTHONPATH', ''); "
    "_s in sys.path and _o not in sys.path and os.path.isdir(_o) "
    "and _s not in map(os.path.abspath, filter(None, _p.split(os.pathsep))) "
    "and sys.path.insert(sys.path.index(_s), _o)\n"
)


class OverlayPthHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        checkout_overlay = Path(self.root) / "components" / "sglang_worker" / "overlay"
        self.scratch = Path(tempfile.mkdtemp(prefix="sglang-worker-pth-"))
        installed = self.scratch / "installed.pth"
        installed.write_text(
            LINE.format(overlay="os.path.join(_s or '', 'sglang_worker', 'overlay')")
        )
        editable = self.scratch / "editable.pth"
        editable.write_text(LINE.format(overlay=repr(str(checkout_overlay))))
        build_data["force_include"][str(installed)] = PTH_NAME
        build_data["force_include_editable"][str(editable)] = PTH_NAME

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)
