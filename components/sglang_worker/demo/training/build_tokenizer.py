"""Train the byte-level BPE tokenizer that all demo models share.

``python -m sglang_worker.demo.training.build_tokenizer`` rewrites ``tokenizer/tokenizer.json``;
every committed weight belongs to the committed tokenizer, so train the models again afterwards.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from sglang_worker.demo.training.corpus import SYSTEM_MESSAGES, docstring_paragraphs, read_chats
from sglang_worker.demo.vocabulary import (
    MARKUP_TOKENS,
    SPECIAL_TOKENS,
    TOKENIZER_FILE,
    VOCABULARY_SIZE,
)


def build() -> Tokenizer:
    """Return the trained tokenizer: special tokens first, then bytes, then merges."""
    texts: list[str] = list(SYSTEM_MESSAGES)
    for chat in read_chats():
        texts += [*chat.questions, *[chat.answer] * 4]
    texts += docstring_paragraphs(limit=600)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=[
            *[AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS],
            *[AddedToken(text, special=False, normalized=False) for text in MARKUP_TOKENS],
        ],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def main() -> None:
    tokenizer = build()
    TOKENIZER_FILE.parent.mkdir(exist_ok=True)
    tokenizer.save(str(TOKENIZER_FILE))
    print(f"{TOKENIZER_FILE}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
