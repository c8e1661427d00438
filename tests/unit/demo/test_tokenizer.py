"""The tokenizer and the chat template that every demo model shares."""

from __future__ import annotations

import jinja2
import pytest
from sglang_worker.demo.training.corpus import read_chats
from sglang_worker.demo.vocabulary import (
    CHAT_TEMPLATE_FILE,
    END_OF_TURN_ID,
    TOKENIZER_FILE,
    tokenizer_config,
)
from tokenizers import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(TOKENIZER_FILE))


def render(**values: object) -> str:
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(CHAT_TEMPLATE_FILE.read_text()).render(**values)


@pytest.mark.parametrize(
    "text", ["What is a runner?", "naïve café 北京 🙂", "a\n\tb  c", "1234567"]
)
def test_any_text_survives_the_round_trip(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_conversation_is_rendered_turn_by_turn(tokenizer: Tokenizer) -> None:
    text = render(
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        ],
        add_generation_prompt=True,
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids.count(END_OF_TURN_ID) == 2


def test_pictures_and_tools_are_rendered() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:"}}
    text = render(
        messages=[{"role": "user", "content": [part]}], tools=[{"type": "function", "name": "f"}]
    )
    assert "<|vision_start|><|image_pad|><|vision_end|>" in text
    assert '"name": "f"' in text


def test_the_end_of_a_turn_is_the_end_token() -> None:
    config = tokenizer_config(64)
    assert config["eos_token"] == "<|im_end|>"
    assert config["model_max_length"] == 64
    assert "im_start" in config["chat_template"]


def test_every_chat_has_an_answer_and_a_question() -> None:
    chats = read_chats()
    assert len(chats) > 100
    assert all(chat.answer and all(chat.questions) for chat in chats)
    questions = [question for chat in chats for question in chat.questions]
    assert len(questions) == len(set(questions))
