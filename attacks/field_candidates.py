"""Which of several values stood in a scrubbed field, by the target's loss on the whole window.

Whoever knows the values that a field may hold (days, amounts, the customers of a region) need not
write it token by token, as CDMI does: it fills in all k tokens of each candidate at once and takes
the one with which the target's loss is least. CDMI, §2.2, calls that membership inference with
candidates. The target may have any task: its labels y are public, and its loss on the whole window
tells more than that on the field's own labels, as the words around a field are tagged less surely
where the field is another than the one that was trained on [ours].

A target that guesses masked tokens itself says how likely a value is: by its tokens from left to
right, with those to the right masked, as in CDMI.

A value may also have the least loss because it is plausible. So fields of documents held out are
ranked along, and what is found beyond them is memory. A model of the target's task that the
adversary trains on public documents, which remembers none of the fields, tells how plausible a
value is: the candidates are then ranked by the target's loss over the reference's, as texts are by
the ratio of two models' log-perplexities in Carlini et al. 2021, §5.2.

Where nobody knows the values, the list is where a search for others begins:
`fedpriv.attacks.field_search`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpriv.attacks.cdmi.attack import guesses_itself
from fedpriv.attacks.cdmi.windows import Windows, device_of, looked_at
from fedpriv.attacks.field_search import Place, Search, Tokens
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.encoders.encoder_model import OnEncoder
from fedpriv.models.field_model import FieldModel, as_field_model
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.seeds import generator, torch_seed
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.threat.access import (
    Architecture,
    FieldCandidates,
    ModelSeries,
    PublicDocuments,
    PublicModel,
    ScrubbedField,
    WhiteBox,
)
from fedpriv.threat.attack import AttackContext, NotApplicable, Outline
from fedpriv.threat.checks import check_least
from fedpriv.threat.claims import FieldRanking, RankedField
from fedpriv.threat.surfaces.fields import CandidateSettings, field_model
from fedpriv.training.loops import Optimizer, train_epoch

PURPOSE = "field candidates reference"

LEAST_LOSS = 1e-12
"""A loss below it counts as it, so that it has a logarithm."""


@dataclass(frozen=True)
class RankingAccess:
    """The losses of the target, the candidates, and what a reference model is trained from."""

    models: ModelSeries
    candidates: FieldCandidates
    documents: PublicDocuments
    architecture: Architecture
    public: PublicModel | None


@dataclass(frozen=True)
class Reference:
    """How the reference model is trained on the public documents, from the public model.

    Args:
        epochs: the number of epochs over the public documents.
        batch_size: the number of windows of text in a training step.
        lr: the learning rate of AdamW; 2e-3 suits tiny models, 5e-5 base ones.
    """

    epochs: int = 60
    batch_size: int = 8
    lr: float = 2e-3

    def __post_init__(self) -> None:
        check_least(self, 1, "epochs", "batch_size")
        self.optimizer()

    def optimizer(self) -> Optimizer:
        """Returns AdamW."""
        return Optimizer("adamw", self.lr)

    def trained(self, access: RankingAccess, target: FieldModel, seed: int) -> FieldModel:
        """Returns the reference model, in evaluation mode, on the target's device.

        Raises:
            NotApplicable: if it diverges.
        """
        network = access.architecture.build()
        if access.public is not None:
            network.load_state_dict(access.public.state)
        model = as_field_model(network.to(device_of(target)))
        examples = model.encode(access.documents.documents)
        shuffle, optimizer = generator(seed, PURPOSE), self.optimizer().build(network)
        with isolated_randomness(torch_seed(seed, PURPOSE)):
            for _ in range(self.epochs):
                batches = examples.batches(
                    self.batch_size, shuffle=shuffle, device=device_of(target)
                )
                loss = train_epoch(network.train(), batches, optimizer)
        if not np.isfinite(loss):
            raise NotApplicable("the reference model diverged: expected a lower learning rate")
        network.eval()
        return model


@dataclass(frozen=True)
class CandidateRanking:
    """Ranks the candidates for each field by the target's loss.

    Args:
        reference: how a reference model is trained on the public documents. The target's losses are
            then divided by its losses. None ranks by the target's losses alone. It cannot be used
            on a target that guesses masked tokens.
        search: how to search for values that are not in the lists. None ranks the listed values
            alone. It cannot be used on a target that guesses masked tokens, of which `attack=cdmi`
            reads more.
        batch_size: the number of windows that go through a model at once.
    """

    reference: Reference | None = None
    search: Search | None = None
    batch_size: int = 128

    def __post_init__(self) -> None:
        check_least(self, 1, "batch_size")

    def suits(self, outline: Outline) -> None:
        """Asks whether the model tells losses, and whether the lists leave something to search."""
        field_model(outline.model)
        self._check_lists(outline.settings.of(CandidateSettings).candidates.game == "given")

    def _check_lists(self, given: bool) -> None:
        if self.search is not None and given:
            raise NotApplicable(
                "attack.search starts from the lists, into which candidates.game=given has put the "
                "true values: take candidates.game=open",
                take="candidates.game=open",
            )

    def run(self, access: RankingAccess, context: AttackContext) -> tuple[FieldRanking, ...]:
        """Returns the losses of all candidates, with each model.

        Raises:
            NotApplicable: if the losses of no model are numbers; if values are to be searched for
                that the lists hold already; or if a target that guesses masked tokens is to be
                searched or compared with a reference model.
        """
        self._check_lists(access.candidates.given)
        # One seed, so that each model is attacked as it would be alone.
        seed, found = int(context.rng.integers(2**63)), []
        reference = None
        for build in access.models.models:
            box = build()
            context.log(f"attacking the model of {box.name}")
            try:
                target = as_field_model(box.model)
                if (self.reference or self.search) and guesses_itself(target):
                    raise NotApplicable(
                        "attack.reference and attack.search are for models that tag or link; one "
                        "that guesses masked tokens is ranked by its own likelihoods"
                    )
                if self.reference is not None:
                    if box.round == 0:
                        raise NotApplicable(
                            "attack.reference: it would start from the weights under attack, and "
                            "with them from all that they remember; take attack.reference=null"
                        )
                    if reference is None:
                        reference = self.reference.trained(access, target, seed)
                found.append(self._ranked(box, reference, access.candidates, context, seed))
            except NotApplicable as reason:
                context.remarks.not_applicable[box.name] = str(reason)
        if not found:
            raise NotApplicable("; ".join(dict.fromkeys(context.remarks.not_applicable.values())))
        return tuple(found)

    def _ranked(
        self,
        box: WhiteBox,
        reference: FieldModel | None,
        given: FieldCandidates,
        context: AttackContext,
        seed: int,
    ) -> FieldRanking:
        target, ranked, unfit = as_field_model(box.model), list[RankedField](), []
        models = [target] if reference is None else [target, reference]
        examples, fields = given.scrubbed.examples, given.scrubbed.fields
        subwords = target.reader.subwords
        for count, one in enumerate(fields, 1):
            candidates = given.lists[one.number]
            if guesses_itself(target):
                losses = _own_head(target, examples, one, candidates, self.batch_size)
            else:
                objective = _Objective(models, examples, one, self.batch_size)
                if self.search is None:
                    losses = objective.losses(candidates)
                else:
                    words = _words_in(examples, one)
                    fits = functools.cache(lambda value, w=words: _words_of(subwords, value) == w)
                    rng = generator(seed, "field search", client=one.number)
                    listed = [value for value in candidates if fits(value)]
                    if not listed:
                        unfit.append(one)
                        continue
                    visited = self.search.visit(objective, listed, fits, words, subwords.size, rng)
                    candidates, losses = tuple(visited), np.array([*visited.values()])
            ranked.append(RankedField(one.number, candidates, losses))
            if count % max(1, len(fields) // 10) == 0:
                context.log(f"{count} of {len(fields)} fields")
        if unfit:
            context.remarks.left_out["no listed value has as many tokens in each word"] = len(unfit)
        if not ranked:
            raise NotApplicable(
                "no listed value has as many tokens in each word as its field: add values "
                "(candidates.documents, candidates.values)"
            )
        return FieldRanking(tuple(ranked), box.name, box.round, self.search is not None)


class _Objective:
    """The target's loss on the window of one field; log(target / reference) with a reference."""

    def __init__(
        self, models: Sequence[FieldModel], examples: Examples, field: ScrubbedField, size: int
    ) -> None:
        number, self._places, self._size = np.array([field.number]), list(field.places), size
        with torch.no_grad():  # inference mode would keep gradients from what is looked at here
            self._windows = [
                (m, looked_at(m, examples.batch(number, device_of(m)))) for m in models
            ]

    def losses(self, values: Sequence[Tokens]) -> NDArray[np.float64]:
        """Returns the loss of each of C values, (C,)."""
        with torch.no_grad():
            target, *reference = (
                torch.cat([model.losses(rows) for rows in self._filled(window, values)]).double()
                for model, window in self._windows
            )
        losses = _logarithm(target) - _logarithm(reference[0]) if reference else target
        if not bool(losses.isfinite().all()):
            raise NotApplicable(
                "the losses are not finite: has the training diverged? Then lower its learning rate"
            )
        return cast(NDArray[np.float64], losses.cpu().numpy())

    def changes(self, values: Sequence[Tokens]) -> NDArray[np.float64] | None:
        """Returns by how much another token changes the loss to first order, (C, k, V)."""
        tables = []
        for model, window in self._windows:
            if not isinstance(model, OnEncoder):
                return None
            parts = [self._slopes(model, rows) for rows in self._filled(window, values)]
            tables.append(torch.cat(parts).double().cpu().numpy())
        return tables[0] - tables[1] if len(tables) == 2 else tables[0]

    def _slopes(self, model: OnEncoder, rows: Batch) -> Tensor:
        """Returns (e' - e) · dL/de for each token's e', (rows, k, V)."""
        embeddings, seen = model.encoder.word_embeddings, list[Tensor]()
        handle = embeddings.register_forward_hook(
            lambda _module, _inputs, output: seen.append(output.requires_grad_())
        )
        try:
            with torch.enable_grad():
                losses = cast(FieldModel, model).losses(rows)
                total = (_logarithm(losses) if len(self._windows) == 2 else losses).sum()
                (slopes,) = torch.autograd.grad(total, seen[0])
        finally:
            handle.remove()
        slopes, here = slopes[:, self._places], seen[0].detach()[:, self._places]
        return slopes @ embeddings.weight.detach().T - (slopes * here).sum(2, keepdim=True)

    def _filled(self, window: Batch, values: Sequence[Tokens]) -> Iterator[Batch]:
        """Yields the window with each of C values in it, in batches."""
        for start in range(0, len(values), self._size):
            some = torch.tensor(values[start : start + self._size])
            rows = {
                name: column.expand(len(some), *column.shape[1:]) for name, column in window.items()
            }
            ids = window["input_ids"].repeat(len(some), 1)
            ids[:, self._places] = some.to(ids)
            yield {**rows, "input_ids": ids}


def _logarithm(losses: Tensor) -> Tensor:
    return losses.clamp(min=LEAST_LOSS).log()


def _own_head(
    target: FieldModel,
    examples: Examples,
    field: ScrubbedField,
    candidates: Sequence[Tokens],
    size: int,
) -> NDArray[np.float64]:
    """Returns -log p of each of C candidates by a masked language model's own head, (C,)."""
    losses = np.zeros(len(candidates))
    with torch.no_grad():
        batch = examples.batch(np.array([field.number]), device_of(target))
        window = Windows(target, looked_at(target, batch), [field.places], size)
        for step, tokens in enumerate(zip(*candidates, strict=True)):
            # Candidates that begin alike share one evaluation.
            rows = {prefix: row for row, prefix in enumerate({one[:step]: 0 for one in candidates})}
            scores = window.scores([(0, prefix) for prefix in rows])
            likelihoods = scores.double().log_softmax(1)
            asked = [rows[one[:step]] for one in candidates]
            losses -= likelihoods[asked, list(tokens)].cpu().numpy()
    return losses


def _words_of(subwords: Subwords, value: Tokens) -> tuple[Place, ...] | None:
    """Returns where the words of a value lie; None if its text would be cut otherwise."""
    words = subwords.pieces(subwords.text(value).split())
    if tuple(token for word in words for token in word) != value:
        return None
    ends = [0, *itertools.accumulate(map(len, words))]
    return tuple(itertools.pairwise(ends))


def _words_in(examples: Examples, field: ScrubbedField) -> tuple[Place, ...]:
    """Returns where the words of a field lie; the page's words are public but for their letters."""
    first = examples.column("word")[field.number, list(field.places)] >= 0
    return tuple(itertools.pairwise([*np.flatnonzero(first).tolist(), len(first)]))
