"""What can stand on an encoder, by the task's name (000 §2.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fedpriv.models.encoder import Encoder
from fedpriv.models.encoder_model import EncoderModel
from fedpriv.models.encoder_tagger import EncoderTagger
from fedpriv.models.linking import SpadeLinker
from fedpriv.models.masked_lm import MaskedWords
from fedpriv.models.reader import Reader
from fedpriv.models.spade import SpadeExtractor

Model: TypeAlias = EncoderModel | EncoderTagger

HEADS: dict[str, Callable[[Encoder, Reader, Sequence[str]], Model]] = {
    "mlm": MaskedWords,
    "tags": EncoderTagger,
    "spade": SpadeExtractor,
    "links": SpadeLinker,
}
