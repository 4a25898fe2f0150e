"""LayoutLM v1, BROS and BERT as encoders of tokens, with or without the page (CDMI, §2.1).

The networks are those of transformers; their heads are in `fedpriv.models.heads.heads`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import BertModel, BrosModel, PreTrainedModel

from fedpriv.data.examples import Batch
from fedpriv.models.encoders.bros_attention import without_pairs
from fedpriv.models.field_model import VISUAL


class Encoder(nn.Module):
    """Turns tokens and their boxes into vectors; a bimodal encoder also reads the page's image.

    Args:
        network: LayoutLMModel, BrosModel or BertModel; it loses its pooler, which reads the first
            token only. A LayoutLM whose config has a `box_step` sees coordinates (0…1000) rounded
            down to multiples of it.
        visual: called with pixels (B, 3, S, S), uint8, and boxes (B, L, 4) in 0…1000, returns
            (B, L, H), features of each token's box that are added to the token's embedding. None
            makes the encoder unimodal.
    """

    def __init__(self, network: PreTrainedModel, visual: nn.Module | None = None) -> None:
        super().__init__()
        # Any: what these three networks share is typed nowhere in transformers.
        self.network: Any = network
        self.network.pooler = nn.Identity()
        if isinstance(network, BrosModel):
            without_pairs(network)
        self.visual = visual

    def forward(self, batch: Batch) -> Tensor:
        """Returns a vector for each token, (B, L, H).

        Args:
            batch: with `input_ids`, `attention_mask` and `bbox`; a bimodal encoder also needs
                `pixels`, or `visual` in place of them (see `seen`).
        """
        embedded = self.word_embeddings(batch["input_ids"])
        if self.visual is not None:
            embedded = embedded + self.seen(batch)[VISUAL]
        boxes = {}
        if isinstance(self.network, BrosModel):  # shares of the page, which it scales itself
            boxes = {"bbox": batch["bbox"].to(self.network.dtype) / 1000}
        elif not isinstance(self.network, BertModel):
            step = getattr(self.network.config, "box_step", 1)
            boxes = {"bbox": batch["bbox"] // step * step}
        output = self.network(
            inputs_embeds=embedded, attention_mask=batch["attention_mask"], **boxes
        )
        vectors: Tensor = output.last_hidden_state
        return vectors

    def seen(self, batch: Batch) -> Batch:
        """Returns the batch with `visual` (B, L, H) in place of `pixels`.

        A batch that already has `visual`, or one for a unimodal encoder, is returned unchanged.
        """
        if self.visual is None or VISUAL in batch:
            return batch
        rest = {name: column for name, column in batch.items() if name != "pixels"}
        return {**rest, VISUAL: self.visual(batch["pixels"], batch["bbox"])}

    @property
    def word_embeddings(self) -> nn.Embedding:
        """The embeddings of the tokens, (vocabulary, H)."""
        embeddings: nn.Embedding = self.network.get_input_embeddings()
        return embeddings
