"""Replaces the Pods of a worker set, each drained first; ``release.py --help`` tells how."""

from __future__ import annotations

import sys

# The package beside this file: a package is found before a module of the same name.
from release.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
