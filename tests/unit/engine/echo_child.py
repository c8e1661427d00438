"""The target of a child process in test_children: says that it runs, then repeats one message."""

from __future__ import annotations

from multiprocessing.connection import Connection


def echo(pipe: Connection) -> None:
    pipe.send("ready")
    pipe.send(pipe.recv())
