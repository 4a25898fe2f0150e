"""The heads of encoders by the name of their task (CDMI, §2.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.encoder_model import EncoderModel
from fedpriv.models.encoders.encoder_tagger import EncoderTagger
from fedpriv.models.heads.linking import SpadeLinker
from fedpriv.models.heads.masked_lm import MaskedWords
from fedpriv.models.heads.spade import SpadeExtractor
from fedpriv.models.readers.reader import Reader

Model: TypeAlias = EncoderModel | EncoderTagger

HEADS: dict[str, Callable[[Encoder, Reader, Sequence[str]], Model]] = {
    "mlm": MaskedWords,
    "tags": EncoderTagger,
    "spade": SpadeExtractor,
    "links": SpadeLinker,
}
