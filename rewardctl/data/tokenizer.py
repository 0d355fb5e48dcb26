"""Text as token ids, on the `tokenizers` library, and the template that makes prompt and response
one text. Which rows are encoded is in encode.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewardctl.errors import ConfigError, DataError, quote

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Stored in a checkpoint: another way to join would give other scores.
TEMPLATE = "prompt-newline-response-1"
BYTES = 256  # a byte-level vocabulary begins with all of them

_BATCH = 4096  # texts whose encodings are held at a time


def join_prompt(prompt: str | None, response: str) -> str:
    """Prompt and response as one text, a newline between when neither end there is white space."""
    if not prompt:
        return response
    if prompt[-1].isspace() or response[:1].isspace():
        return prompt + response
    return f"{prompt}\n{response}"


class TextEncoder:
    """Turns texts into token ids; a text's ids do not depend on the texts beside it."""

    def __init__(self, tokenizer: Any) -> None:
        """Wrap a `tokenizers.Tokenizer`; truncation, padding and special tokens of its own are off:
        lengths and pooling are the model's.
        """
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer

    @classmethod
    def train_bpe(cls, texts: Iterable[str], vocab_size: int) -> TextEncoder:
        """A byte-level BPE learnt from distinct texts; same texts in the same order, same encoder.

        It has fewer than `vocab_size` ids when the texts do not hold that many frequent pieces.

        Raises:
            ConfigError: `vocab_size` is below the 256 bytes.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        if vocab_size < BYTES:
            raise ConfigError(
                f"model.vocab_size: a byte-level BPE has at least {BYTES} ids, got {vocab_size}; "
                "raise it, or set model.tokenizer to bytes"
            )
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=2,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        # An argument that stands in many pairs is no more of a word than one in a single pair.
        tokenizer.train_from_iterator(dict.fromkeys(texts), trainer)
        return cls(tokenizer)

    @classmethod
    def byte_encoder(cls) -> TextEncoder:
        """An encoder whose ids are the bytes of UTF-8."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        tokenizer = Tokenizer(models.BPE(vocab=_byte_vocabulary(), merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return cls(tokenizer)

    @classmethod
    def load(cls, path: Path) -> TextEncoder:
        """The encoder of a tokenizer.json.

        Raises:
            DataError: there is no such file, or it is none.
        """
        from tokenizers import Tokenizer

        try:
            text = Path(path).read_text("utf-8")
        except FileNotFoundError:
            raise DataError(f"{path}: no such file; expected a tokenizer.json") from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path}: expected a tokenizer.json, cannot read it: {error}"
            ) from error
        try:
            tokenizer = Tokenizer.from_str(text)
        # The library raises bare Exception for whatever is wrong with the file.
        except Exception as error:
            raise DataError(
                f"{path}: expected a tokenizer.json of the tokenizers library, "
                f"but it does not load: {error}"
            ) from error
        return cls(tokenizer)

    @property
    def vocab_size(self) -> int:
        """One more than the highest id."""
        ids = self._tokenizer.get_vocab(with_added_tokens=True).values()
        return max(ids, default=-1) + 1

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.int32]]:
        """The ids of each text, int32 (length,).

        Raises:
            DataError: a text holds half of a surrogate pair, which is no character.
        """
        import numpy as np

        encoded: list[NDArray[np.int32]] = []
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            for text in batch:
                if not is_unicode(text):
                    raise DataError(
                        f"expected Unicode text, found a lone surrogate in {quote(text)}"
                    )
            encodings = self._tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            encoded += [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
        return encoded

    def to_json(self) -> str:
        """What `load` reads, as text."""
        text: str = self._tokenizer.to_str()
        return text

    def save(self, path: Path) -> None:
        """Write a tokenizer.json."""
        Path(path).write_text(self.to_json(), "utf-8")


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON may escape half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _byte_vocabulary() -> dict[str, int]:
    """Byte → id, each byte written as the character that byte-level BPE has for it.

    Radford et al. (2019), GPT-2, `bytes_to_unicode`: printable Latin-1 stands for itself, the
    others follow from code point 256.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(BYTES) if byte not in printable)
    moved = {byte: BYTES + place for place, byte in enumerate(others)}
    return {chr(moved.get(byte, byte)): byte for byte in range(BYTES)}
