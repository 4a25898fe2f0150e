"""Cuts words into sub-word tokens, and tokens into windows, for all OCR-based models.

Each word is tokenised on its own, its box is repeated for its tokens, and only its first token
carries a label (PrIeD-KIE, §4.2).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.normalizers import Lowercase

from fedpriv.data import apart, tokenizer_file

SHIPPED = Path(__file__).parents[1] / "tokenizer.json"
"""A byte-level BPE trained on generated invoices (`train_tokenizer`): reads any text, offline."""

PARTS = r" ?[0-9]{1,2}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\p{N}|\s+"
"""The parts that no token crosses: pairs of digits, runs of letters, runs of signs."""

CLS, PAD, SEP, UNKNOWN, MASK = "<s>", "<pad>", "</s>", "<unk>", "<mask>"

SAMPLE = ("total", "date", "invoice", "number", "company", "7.42", "2018", "a", "1")
"""Words that the tokenizer of a model for documents can read, most of them at least."""

NAMED = 6
"""Files of a folder that an error names."""


@dataclass(frozen=True)
class Subwords:
    """A tokenizer and the special tokens that a sequence needs.

    Attributes:
        tokenizer: of the tokenizers library.
        cls: id that opens a sequence.
        sep: id that closes it.
        pad: id that fills it up.
        lowercase: lower-case words first (PrIeD-KIE lower-cases all text).
        mask: id that stands for a hidden token; None if the tokenizer has no such token.
    """

    tokenizer: Tokenizer
    cls: int
    sep: int
    pad: int
    lowercase: bool = True
    mask: int | None = None

    @classmethod
    @cache
    def shipped(cls) -> Subwords:
        """Returns the tokenizer that comes with fedpriv."""
        tokenizer = Tokenizer.from_file(str(SHIPPED))
        ids: dict[str, int] = tokenizer.get_vocab()
        return cls(tokenizer, cls=ids[CLS], sep=ids[SEP], pad=ids[PAD], mask=ids[MASK])

    @classmethod
    def from_pretrained(cls, folder: Path | str, subfolder: str = "") -> Subwords:
        """Returns the tokenizer of a pretrained model, from a local folder or a hub id.

        Raises:
            ValueError: if it cannot be loaded, makes a book of a line, or reads next to nothing.
                Where its files are missing, transformers makes one of the special tokens alone,
                and says nothing.
            OSError: if there is no such folder and no such model on the hub.
        """
        # It takes seconds, and the shipped tokenizer does without.
        from transformers import AutoTokenizer
        from transformers.utils.hub import cached_file

        place = Path(folder, subfolder)
        file = cached_file(
            str(folder),
            "tokenizer.json",
            subfolder=subfolder,
            _raise_exceptions_for_missing_entries=False,
        )
        if file is not None:
            apart.call(tokenizer_file.check, Path(file))
        try:
            loaded = AutoTokenizer.from_pretrained(
                str(folder), subfolder=subfolder, trust_remote_code=False
            )
        except (TypeError, ValueError) as error:  # of a class that cannot do without its files
            raise _unusable(place, str(error).strip().partition("\n")[0]) from error
        # Words are cut into tokens one by one, and must not be padded to the longest.
        loaded.backend_tokenizer.no_padding()
        loaded.backend_tokenizer.no_truncation()
        # T5 has only an end of text, which closes a sequence.
        end = loaded.eos_token_id if loaded.sep_token_id is None else loaded.sep_token_id
        begin = end if loaded.cls_token_id is None else loaded.cls_token_id
        mask = loaded.mask_token_id
        subwords = cls(loaded.backend_tokenizer, begin, end, loaded.pad_token_id, mask=mask)
        nothing = {loaded.unk_token_id, end}  # `pieces` puts the end where a word has no token
        known = sum(nothing.isdisjoint(tokens) for tokens in subwords.pieces(SAMPLE))
        if 3 * known < len(SAMPLE):  # numbers alone are a third, and no vocabulary lacks them
            words = f"{known} of the {len(SAMPLE)} words {', '.join(SAMPLE)}"
            raise _unusable(place, f"of {subwords.size} tokens, it can read {words}")
        return subwords

    def save_pretrained(self, folder: Path | str) -> None:
        """Writes the tokenizer's files, as transformers' `AutoTokenizer` reads them."""
        from transformers import PreTrainedTokenizerFast

        tokens = {
            "cls_token": self.cls,
            "bos_token": self.cls,
            "sep_token": self.sep,
            "eos_token": self.sep,
            "pad_token": self.pad,
            "mask_token": self.mask,
        }
        special = {
            name: self.tokenizer.id_to_token(number)
            for name, number in tokens.items()
            if number is not None
        }
        PreTrainedTokenizerFast(tokenizer_object=self.tokenizer, **special).save_pretrained(
            str(folder)
        )

    @property
    def size(self) -> int:
        """Number of tokens."""
        return self.tokenizer.get_vocab_size()

    @property
    def digest(self) -> str:
        """A hash of the vocabulary and all rules that turn words into tokens."""
        rules = json.loads(self.tokenizer.to_str())
        del rules["post_processor"]  # it adds special tokens, which we do ourselves
        text = json.dumps({**rules, "lowercase": self.lowercase}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def pieces(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the token ids of each word, at least one for each."""
        # The leading space marks the beginning of a word in byte-level vocabularies.
        # A page that prints "</s>" shows text, not the end of itself.
        self.tokenizer.encode_special_tokens = True
        texts = [f" {word.lower() if self.lowercase else word}" for word in words]
        encoded = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [encoding.ids or [self.sep] for encoding in encoded]

    def tokens(self, text: str) -> list[int]:
        """Returns the token ids of a text's words, one after the other."""
        return [token for word in self.pieces(text.split()) for token in word]

    def text(self, ids: Sequence[int]) -> str:
        """Returns the text of token ids, without special tokens and with single spaces."""
        decoded: str = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        return " ".join(decoded.split())


def _unusable(place: Path, why: str) -> ValueError:
    """Returns the error on a tokenizer that reads nothing: why, what is there, what would do."""
    files = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    more = f" and {len(files) - NAMED} more" if len(files) > NAMED else ""
    holds = f"; the folder holds {', '.join(files[:NAMED])}{more}" if files else ""
    return ValueError(
        f"{place} has no tokenizer that can be used: {why}{holds}; expected tokenizer.json or the "
        "vocabulary beside the weights, as save_pretrained of the tokenizer that the model was "
        "trained with writes them"
    )


@dataclass(frozen=True)
class Window:
    """A run of tokens short enough for the model, with the words that they come from.

    Attributes:
        ids: token ids, without special tokens.
        words: for each token, the index of its word.
        first: for each token, whether it is the first of its word.
    """

    ids: list[int]
    words: list[int]
    first: list[bool]


def windows(pieces: Iterable[Sequence[int]], length: int) -> list[Window]:
    """Cuts a document's tokens into one or more windows of at most `length`, without overlap."""
    ids: list[int] = []
    words: list[int] = []
    first: list[bool] = []
    for word, tokens in enumerate(pieces):
        ids += tokens
        words += [word] * len(tokens)
        first += [True] + [False] * (len(tokens) - 1)
    return [
        Window(ids[i : i + length], words[i : i + length], first[i : i + length])
        for i in range(0, max(len(ids), 1), length)
    ]


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Trains a byte-level BPE with numbers cut into pairs of digits; deterministic.

    Years, days, months and cents come in pairs of digits, and a model of any size can learn all
    hundred pairs.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PARTS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[CLS, PAD, SEP, UNKNOWN, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
