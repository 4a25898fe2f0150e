"""Local training: the client's half of FedAvg (McMahan et al. 2017, ClientUpdate).

E epochs over the client's own examples in shuffled batches, from the global model, with a fresh
optimiser; sends the change of the model. Adam in PrIeD-KIE, App. B, AdamW with lr 2e-4 in
PFL-DocVQA, §6.1. Where the server sends a `proximal-mu`, as Flower's FedProx does, it is the
client's half of FedProx (Li et al. 2020, Algorithm 2), which adds μ/2 ‖w - w_t‖² to the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedpriv.data.examples import Batch
from fedpriv.federation.client import GLOBALS, ClientContext, ClientUpdate
from fedpriv.federation.messages import NUM_EXAMPLES
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.training.cohorts import train_cohort
from fedpriv.training.computing import Backward, Computing
from fedpriv.training.loops import Optimizer, train_epoch

LOSS = "train-loss"
PROXIMAL_MU = "proximal-mu"


@dataclass(frozen=True)
class LocalTraining:
    """Trains on the client's own examples.

    Args:
        epochs: the number of passes over a client's examples in each round (E).
        batch_size: the number of examples in one optimiser step; the last batch of an epoch may be
            smaller.
        optimizer: the optimiser, which is made anew in every round, so no moments survive between
            rounds.
    """

    action: ClassVar[str] = "local_training"
    computes: ClassVar[tuple[str, ...]] = ("precision", "microbatch", "compile")
    follows: ClassVar[Mapping[str, type]] = {PROXIMAL_MU: float}

    epochs: int = 1
    batch_size: int = 8
    optimizer: Optimizer = Optimizer()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least 1")

    def train(self, context: ClientContext) -> ClientUpdate:
        """Returns the change of the model and the mean loss of the last epoch."""
        optimizer = self.optimizer.build(context.model)
        shuffle, backward = context.generator("local shuffling"), Backward(context.computing)
        if mu := float(context.instruction.settings.get(PROXIMAL_MU, 0.0)):
            backward = Proximal(context.computing, context.model, mu)
        loss = 0.0
        for _ in range(self.epochs):
            batches = context.examples.batches(
                self.batch_size, shuffle=shuffle, device=context.device
            )
            loss = train_epoch(context.model, batches, optimizer, backward)
        return ClientUpdate(
            update=context.layout.change_since(context.parameters),
            metrics={NUM_EXAMPLES: len(context.examples), LOSS: loss},
        )

    def train_many(self, contexts: Sequence[ClientContext]) -> list[ClientUpdate]:
        """Returns what `train` returns for each client, from one pass (up to rounding)."""
        first = contexts[0]
        if first.instruction.settings.get(PROXIMAL_MU):
            return [self._train_alone(context) for context in contexts]
        trained = train_cohort(
            first.model,
            [context.examples for context in contexts],
            self.optimizer,
            epochs=self.epochs,
            batch_size=self.batch_size,
            shuffles=[context.generator("local shuffling") for context in contexts],
            seeds=[context.torch_seed(GLOBALS) for context in contexts],
            device=first.device,
            computing=first.computing,
        )
        return [
            ClientUpdate(
                update=context.layout.change_since(context.parameters, trained.of(place)),
                metrics={NUM_EXAMPLES: len(context.examples), LOSS: trained.losses[place]},
            )
            for place, context in enumerate(contexts)
        ]

    def _train_alone(self, context: ClientContext) -> ClientUpdate:
        context.restart()
        with isolated_randomness(context.torch_seed(GLOBALS)):
            return self.train(context)


class Proximal(Backward):
    """Adds μ (w - w_t) to the gradient of a batch, that of FedProx's term μ/2 ‖w - w_t‖².

    The loss that it returns is that of the examples, without the term.

    Args:
        computing: how the gradient is computed.
        model: holds w_t.
        mu: μ of Li et al. 2020.
    """

    def __init__(self, computing: Computing, model: nn.Module, mu: float) -> None:
        super().__init__(computing)
        self.mu = mu
        self.start = [parameter.detach().clone() for parameter in model.parameters()]

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """Puts the gradient into `grad` of the parameters; returns the loss of the examples."""
        loss = super().__call__(model, batch)
        with torch.no_grad():
            for parameter, start in zip(model.parameters(), self.start, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - start, alpha=self.mu)
        return loss
