"""PUB-MLM: a masked language model of the target's kind, trained on public pages (CDMI, §4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.attacks.cdmi.windows import device_of
from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.field_model import FieldModel, TokenModel
from fedpriv.models.question_answering import DOCUMENT
from fedpriv.runtime.seeds import generator, torch_seed
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.threat.access import Architecture, PublicModel
from fedpriv.threat.attack import NotApplicable
from fedpriv.threat.checks import check_choices, check_least, check_share
from fedpriv.threat.kept import Kept
from fedpriv.training.loops import Optimizer, train_epoch

M = TypeVar("M", bound=FieldModel)

PURPOSE = "cdmi public mlm"

RANDOM = "random"

LINES = 10
"""Of progress, at most."""


@dataclass(frozen=True)
class Training:
    """How PUB-MLM is trained: by AdamW on batches of the public windows.

    CDMI says that the adversary knows the training procedure, and gives the epochs only.

    Args:
        epochs: the number of epochs that PUB-MLM, the adversary's own language model, is trained
            for (CDMI, §5.1: 300 for a masked language model).
        held_out: the share of the public documents that is held out to choose the best epoch.
            PUB-MLM is not trained on them, which weakens it, and with it the baseline. At 0, the
            last epoch is taken. CDMI has a validation set apart [ours].
        criterion: how the best epoch is chosen: by "precision", the most tokens guessed right, or
            by the least "loss", which comes many epochs earlier and makes a much weaker baseline.
            CDMI uses both for targets, and does not say which for PUB-MLM.
        batch_size: the number of windows of text in a training step [ours].
        lr: the learning rate of AdamW [ours].
        weight_decay: the weight decay of AdamW [ours].
        start: the checkpoint that PUB-MLM starts from, for targets that were trained elsewhere: a
            local folder, a hub id, or "random" for random weights of the run's architecture [ours].
            None takes the public model that the run started from.
    """

    epochs: int = 300
    batch_size: int = 8
    lr: float = 5e-5
    weight_decay: float = 0.0
    held_out: float = 0.2
    criterion: Literal["precision", "loss"] = "precision"
    start: str | None = None

    def __post_init__(self) -> None:
        check_choices(self)
        check_share(self, "held_out", none=True)
        check_least(self, 0, "epochs")
        check_least(self, 1, "batch_size")
        self.optimizer()

    def worth(self, measured: Mapping[str, float]) -> float:
        """Returns how good an epoch is by the criterion; higher is better."""
        if self.criterion == "loss":
            return -measured["loss"]
        return measured.get("accuracy", -measured["loss"])

    def optimizer(self) -> Optimizer:
        """Returns AdamW."""
        return Optimizer("adamw", self.lr, self.weight_decay)


@dataclass(frozen=True)
class Trained(Generic[M]):
    """A model that the adversary has trained, such as PUB-MLM.

    Attributes:
        model: in evaluation mode.
        metrics: of it on the documents that were held out; without such, on all public ones.
    """

    model: M
    metrics: Mapping[str, float]


def untrained(
    architecture: Architecture,
    target: FieldModel,
    public: PublicModel | None,
    start: str | None = None,
) -> TokenModel:
    """Returns a model like the target for masked language modelling, on the target's device.

    Args:
        architecture: of the target.
        target: which tells the device and the tokenizer.
        public: its weights are taken where both have them; None for none.
        start: see `Training`; `public` is then left alone.

    Raises:
        NotApplicable: if no such model can be built, or it has another tokenizer.
    """
    try:
        chosen = {"pretrained": None if start == RANDOM else start} if start else {}
        model = architecture.build(task="mlm", **chosen)
    except TypeError as error:
        raise NotApplicable(
            f"no model for masked language modelling can be built beside the target: {error}"
        ) from error
    if not isinstance(model, TokenModel):
        raise NotApplicable(f"{type(model).__name__} guesses no masked tokens")
    mine, its = model.reader.subwords.digest, target.reader.subwords.digest
    if mine != its:
        raise NotApplicable(
            f"the target's tokenizer ({its[:12]}) is not PUB-MLM's ({mine[:12]}): name a "
            "checkpoint with the target's tokenizer in attack.generator.start"
        )
    return started(model, None if start else public).to(device_of(target))


def started(model: M, public: PublicModel | None) -> M:
    """Returns the model with the public one's weights where both have them."""
    network = cast(nn.Module, model)
    own = network.state_dict()
    for name, tensor in (public.state if public else {}).items():
        # LoRA keeps the weights that it adapts under another name.
        plain = name.replace(".base_layer.", ".")
        if plain in own and own[plain].shape == tensor.shape:
            own[plain] = tensor
    network.load_state_dict(own)
    return model


def check_baseline(own: TokenModel, target: FieldModel) -> None:
    """Refuses a PUB-MLM that starts from the weights under attack: the baseline would have them.

    Args:
        own: before its training.
        target: which the run did not train.

    Raises:
        NotApplicable: if they have a matrix of weights in common.
    """
    theirs = dict(cast(nn.Module, target).named_parameters())
    for name, tensor in cast(nn.Module, own).named_parameters():
        other = theirs.get(name)
        drawn = tensor.ndim > 1 and bool(tensor.std() > 0)
        if drawn and other is not None and torch.equal(tensor, other):
            raise NotApplicable(
                "the run's model is loaded from a checkpoint (model.pretrained), so PUB-MLM, and "
                f"with it the baseline, would start from the weights under attack ({name}): name "
                "the public checkpoint that it was made from, such as attack.generator.start="
                "microsoft/layoutlm-base-uncased, or take attack.generator.start=random"
            )


def public_mlm(
    model: M,
    documents: Sequence[Document],
    training: Training,
    seed: int,
    scratch: Path,
    tell: Callable[[str], None],
    name: str = "PUB-MLM",
) -> Trained[M]:
    """Trains PUB-MLM, or takes its weights from `scratch` where the same was trained before.

    Args:
        model: to be trained, where it is to stay.
        documents: public ones.
        training: how.
        seed: of order, masks and dropout.
        scratch: a folder for its weights.
        tell: shows a line of progress.
        name: of the model, for these lines; a shadow of the target is trained likewise.

    Raises:
        ValueError: if it diverges.
    """
    network = cast(nn.Module, model)
    examples = model.encode(documents)
    size = min(round(training.held_out * len(documents)), len(documents) - 1)
    chosen = generator(seed, f"{PURPOSE}, held out").choice(len(documents), size, replace=False)
    out = np.isin(examples.column(DOCUMENT), chosen)
    train, held = (examples.take(np.flatnonzero(rows)) for rows in (~out, out))
    kept = Kept.of(
        scratch,
        "cdmi-public-mlm",
        start=model,
        rows=examples,
        training=training,
        seed=seed,
        device=device_of(model).type,
    )
    if weights := kept.state():
        tell(f"{name} was trained before")
        network.load_state_dict(weights)
    else:
        with isolated_randomness(torch_seed(seed, PURPOSE)):
            _train(network, train, held, training, seed, tell, name)
        kept.write(dict(network.state_dict()))
    return Trained(model, _evaluated(network, held if len(held) else train, seed))


def _evaluated(network: nn.Module, examples: Examples, seed: int) -> dict[str, float]:
    """Returns the metrics; leaves the network in evaluation mode."""
    network.eval()
    with isolated_randomness(torch_seed(seed, f"{PURPOSE}, evaluation")), torch.no_grad():
        return dict(cast(FieldModel, network).evaluate(examples))


def _state(network: nn.Module) -> dict[str, Tensor]:
    return {n: t.detach().cpu().contiguous().clone() for n, t in network.state_dict().items()}


def _train(
    network: nn.Module,
    examples: Examples,
    held: Examples,
    training: Training,
    seed: int,
    tell: Callable[[str], None],
    name: str,
) -> None:
    """Trains in place; ends with the weights of the best epoch on `held`, of equals the last."""
    device = device_of(network)
    optimizer = training.optimizer().build(network)
    shuffle = generator(seed, PURPOSE)
    best, most = _state(network), -math.inf
    for epoch in range(1, training.epochs + 1):
        batches = examples.batches(training.batch_size, shuffle=shuffle, device=device)
        loss = train_epoch(network.train(), batches, optimizer)
        measured = _evaluated(network, held, seed) if len(held) else {"loss": 0.0}
        if not (math.isfinite(loss) and math.isfinite(measured["loss"])):
            raise ValueError(
                f"{name} diverged in epoch {epoch} with lr={training.lr}: expected a lower one"
            )
        worth = training.worth(measured)
        if worth >= most:
            best, most = _state(network), worth
        if epoch % max(training.epochs // LINES, 1) == 0:
            said = f", held out {worth:.3f}, best {most:.3f}" if len(held) else ""
            tell(f"{name}, epoch {epoch} of {training.epochs}: loss {loss:.3f}{said}")
    network.load_state_dict(best)
