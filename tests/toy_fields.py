"""A model of which token follows which, and short pages with a field for it to guess."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.document import Document, DocumentSet, Entity, Word
from fedpriv.data.partition import HoldOut, Iid
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.settings import Settings
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.surfaces.fields import KeepScrubbed
from fedpriv.training.loops import Optimizer

SPECIAL = ("<s>", "</s>", "<pad>", "<mask>")
DIGITS = tuple(f"d{n}" for n in range(10))
VOCABULARY = (*SPECIAL, "name", "code", "end", *DIGITS)


def subwords() -> Subwords:
    numbers = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(numbers, "end"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Subwords(tokenizer, cls=0, sep=1, pad=2, mask=3)


class Follows(nn.Module):
    """Guesses a token from the one before it; reads the page but does not look at it."""

    def __init__(self, labels=(), task="mlm", image_size=None, max_length=16):
        super().__init__()
        self.labels, self.task = list(labels), task
        self.reader = Reader(subwords(), max_length, image_size)
        self.table = nn.Parameter(torch.zeros(len(VOCABULARY), len(VOCABULARY)))

    def encode(self, documents):
        tags = ["O", *(f"{p}-{label}" for label in self.labels for p in "BI")]
        return self.reader.read(documents, tags)

    def losses(self, batch):
        before, here = batch["input_ids"][:, :-1], batch["input_ids"][:, 1:]
        wrong = nn.functional.cross_entropy(
            self.table[before].transpose(1, 2), here, reduction="none"
        )
        real = batch["attention_mask"][:, 1:]
        return (wrong * real).sum(1) / real.sum(1)

    def loss(self, batch):
        return self.losses(batch).mean()

    def seen(self, batch):
        return batch

    def token_scores(self, batch, places):
        rows = torch.arange(len(places))
        return self.table[batch["input_ids"][rows, places - 1]]

    def evaluate(self, examples):
        losses = [self.losses(batch).mean().item() for batch in examples.batches(64)]
        return {"loss": float(np.mean(losses)), "accuracy": 0.5}

    def answer(self, documents):
        return [() for _ in documents]


def follows(labels=(), task="mlm"):
    return Follows(labels, task)


def page(name: str, digits, *, key: str = "code") -> Document:
    """`name code D D D end`, the digits an entity; ink stands in each word's box."""
    texts = ["name", "code", *digits, "end"]
    pixels = np.full((20, 10 * len(texts)), 255, dtype=np.uint8)
    pixels[5:15] = 0
    words = tuple(Word(t, (10.0 * n, 5.0, 10.0 * n + 10, 15.0), n) for n, t in enumerate(texts))
    entity = Entity(key, tuple(range(2, 2 + len(digits))))
    return Document(name, name, pixels, (10 * len(texts), 20), words, (entity,))


@dataclass(frozen=True)
class Codes:
    """Pages each with a code of `size` digits of its own."""

    pages: int = 12
    size: int = 3

    def load(self):
        rng = np.random.default_rng(5)
        draws = rng.integers(10, size=(self.pages, self.size))
        made = tuple(page(f"p{n}", [DIGITS[d] for d in draw]) for n, draw in enumerate(draws))
        return DocumentSet("codes", made, ("code",))


@dataclass(frozen=True)
class OneCode(Codes):
    """Pages of one code, which a model that does not look at the page can learn by heart."""

    def load(self):
        loaded = super().load()
        words = loaded.documents[0].words
        same = tuple(dataclasses.replace(one, words=words) for one in loaded.documents)
        return dataclasses.replace(loaded, documents=same)


def federation(runs, *, source=Codes(), keep=(KeepScrubbed(),), model=follows, **settings):  # noqa: B008
    """One client trains on half of what is not held out; the other half is public."""
    data = DocumentData(source, Iid(1), HoldOut(fraction=0.25), cache="off", public=0.5)
    return Federation(
        model=model,
        data=data,
        strategy=FedAvg(),
        client=LocalTraining(optimizer=Optimizer("adam", lr=0.5)),
        keep=keep,
        runs=runs,
        settings=Settings(**{"keep_checkpoints": 0, **settings}),
    )
