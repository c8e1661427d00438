"""Hatchling hook: ships the ``.pth`` line that lets our ``dynamo.sglang`` win over upstream's.

The line runs inside ``site.addpackage``, whose local ``sitedir`` names the site-packages folder
being processed. The overlay goes directly in front of it, so PYTHONPATH still wins. A wheel finds
the overlay below ``sitedir``; an editable install gets the checkout's absolute path.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PTH_NAME = "sglang_worker_overlay.pth"
LINE = (
    "import os, sys; _s = sys._getframe(1).f_locals.get('sitedir'); _o = {overlay}; "
    "_s in sys.path and _o not in sys.path and os.path.isdir(_o) "
    "and sys.path.insert(sys.path.index(_s), _o)\n"
)


class OverlayPthHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        checkout_overlay = Path(self.root) / "components" / "sglang_worker" / "overlay"
        folder = Path(tempfile.mkdtemp(prefix="sglang-worker-pth-"))
        installed = folder / "installed.pth"
        installed.write_text(
            LINE.format(overlay="os.path.join(_s or '', 'sglang_worker', 'overlay')")
        )
        editable = folder / "editable.pth"
        editable.write_text(LINE.format(overlay=repr(str(checkout_overlay))))
        build_data["force_include"][str(installed)] = PTH_NAME
        build_data["force_include_editable"][str(editable)] = PTH_NAME
