"""Machine and versions, in the words that stand above a table."""

from __future__ import annotations

import platform
import time


def device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"


def versions() -> str:
    """Day, Python, torch and SGLang."""
    import sglang
    import torch

    return (
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, "
        f"torch {torch.__version__}, SGLang {sglang.__version__}"
    )
