"""The texts that the demo models learn: this project's own chats and Python's docstrings.

Chats are in ``chats.txt`` (written for this project). Docstrings are read from the standard
library of the running interpreter and are used for training only; none is stored.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

CHATS = Path(__file__).with_name("chats.txt")
SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You are the demo model of this project.",
    "Answer in short and clear sentences.",
)
_SENTENCE = re.compile(r"^[A-Z][A-Za-z0-9 ,;:'\-()\n]{40,400}\.$")


class Chat(msgspec.Struct, frozen=True):
    """One answer and the ways to ask for it."""

    questions: tuple[str, ...]
    answer: str


def read_chats(path: Path = CHATS) -> tuple[Chat, ...]:
    """Read pairs of a ``Q:`` line (questions separated by ``|``) and an ``A:`` line."""
    chats: list[Chat] = []
    questions: tuple[str, ...] = ()
    for line in path.read_text().splitlines():
        if line.startswith("Q: "):
            questions = tuple(part.strip() for part in line[3:].split("|"))
        elif line.startswith("A: "):
            chats.append(Chat(questions, line[3:].strip()))
    return tuple(chats)


def docstring_paragraphs(limit: int = 3000) -> list[str]:
    """Return prose paragraphs of the standard library's docstrings, in a stable order."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for text in _docstrings(path):
            for paragraph in text.split("\n\n"):
                plain = " ".join(paragraph.split())
                if _SENTENCE.match(plain):
                    found.setdefault(plain)
    return list(found)[:limit]


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def sample_conversation(chats: Sequence[Chat], rng: random.Random) -> list[dict[str, str]]:
    """Draw one conversation: sometimes with a system message, sometimes with two turns."""
    messages: list[dict[str, str]] = []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": rng.choice(SYSTEM_MESSAGES)})
    for _ in range(2 if rng.random() < 0.2 else 1):
        chat = rng.choice(chats)
        question = vary(rng.choice(chat.questions), rng)
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": chat.answer})
    return messages


def vary(question: str, rng: random.Random) -> str:
    """Change how a question is typed, so that the model does not depend on it."""
    draw = rng.random()
    if draw < 0.1:
        return question.lower()
    if draw < 0.2:
        return question.rstrip("?.!")
    if draw < 0.3:
        return f"{question} Please answer in one or two sentences."
    return question
