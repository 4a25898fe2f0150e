"""BIO tags on an encoder's words: the task EE-BIO of CDMI, §2.1."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from fedpriv.data.examples import Batch
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.encoder_model import OnEncoder
from fedpriv.models.readers.reader import Reader
from fedpriv.models.saving import draw_linear
from fedpriv.models.tagging import WordTagger


class EncoderTagger(OnEncoder, WordTagger):
    """An encoder with a BIO tag on each word; a `fedpriv.models.field_model.FieldModel`.

    Args:
        encoder: turns tokens into vectors.
        reader: turns documents into windows.
        labels: entity types of the data set.
    """

    task = "tags"

    def __init__(self, encoder: Encoder, reader: Reader, labels: Sequence[str]) -> None:
        super().__init__(reader, labels)
        self.encoder = encoder
        config = encoder.network.config
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, len(self.tags))
        draw_linear(self.classifier, config.initializer_range)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""
        scores: Tensor = self.classifier(self.dropout(self.encoder(batch)))
        return scores

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer."""
        return [self.classifier]
