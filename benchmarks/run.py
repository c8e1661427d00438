"""``make bench``: every measurement that this machine can make, one after the other."""

from __future__ import annotations

import subprocess
import sys

COMMANDS = (
    ("benchmarks.demo_rates",),
    ("benchmarks.drain", "--short"),
    ("benchmarks.metrics",),
    ("benchmarks.memory",),
)


def main() -> int:
    worst = 0
    for module, *arguments in COMMANDS:
        print(f"== {module} {' '.join(arguments)}", flush=True)
        code = subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode
        worst = worst or code
    return worst


if __name__ == "__main__":
    sys.exit(main())
