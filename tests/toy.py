"""Small parts for tests: a two-layer network on made-up numbers, and clients that misbehave."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.federation.client import ClientContext, ClientUpdate
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.loop import Federation
from fedpriv.federation.settings import Settings
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer


class Net(nn.Module):
    """Classifies four numbers; with BatchNorm (a 0-d int64 counter) and dropout."""

    def __init__(self, batch_norm: bool = False) -> None:
        super().__init__()
        norm = nn.BatchNorm1d(8) if batch_norm else nn.Identity()
        self.layers = nn.Sequential(
            nn.Linear(4, 8), norm, nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2)
        )

    def loss(self, batch):
        return nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"])

    def evaluate(self, examples):
        batch = examples.batch(np.arange(len(examples)), next(self.parameters()).device)
        guess = self.layers(batch["x"]).argmax(1)
        return {
            "loss": self.loss(batch).item(),
            "accuracy": (guess == batch["y"]).float().mean().item(),
        }


def norm_net() -> Net:
    return Net(batch_norm=True)


def data(clients: int = 8, per_client: int = 12, seed: int = 0) -> ArrayData:
    """Clients of unequal size whose label is the sign of the first number."""
    rng = np.random.default_rng(seed)
    sizes = per_client + np.arange(clients) % 3
    x = rng.normal(size=(sizes.sum() + 64, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    ends = np.cumsum(sizes)
    rows = tuple(np.arange(e - s, e) for s, e in zip(sizes, ends, strict=True))
    cut = ends[-1]
    return ArrayData({"x": x[:cut], "y": y[:cut]}, rows, {"x": x[cut:], "y": y[cut:]})


class OutOfLuck(RuntimeError):
    """What a failing client raises; its text must not reach the server."""


def befall(fault, context: ClientContext) -> None:
    """Does to a client what its fault is."""
    if fault == "raise":
        raise OutOfLuck("the invoice of ACME Ltd could not be read")
    if fault == "exit":
        os._exit(3)
    if fault == "hang":
        time.sleep(3600)
    if fault == "nan":
        with torch.no_grad():
            next(context.model.parameters()).fill_(float("nan"))


@dataclass(frozen=True)
class Faulty:
    """Local training, except where `faults` says what happens: {"round/client": kind}."""

    action: ClassVar[str] = "local_training"

    faults: Mapping[str, str] = field(default_factory=dict)
    pause: float = 0.0
    inner: LocalTraining = field(
        default_factory=lambda: LocalTraining(batch_size=7, optimizer=Optimizer(lr=0.02))
    )

    def train(self, context: ClientContext) -> ClientUpdate:
        time.sleep(self.pause)
        befall(self.faults.get(f"{context.instruction.round}/{context.client}"), context)
        return self.inner.train(context)


def federation(
    faults: Mapping[str, str] | None = None, clients: int = 8, model=Net, seed=0, runs="runs", **kw
) -> Federation:
    """A toy federation; what is not a part of it is a setting."""
    strategy = kw.pop("strategy", None) or FedAvg()
    client = kw.pop("client", None) or Faulty(faults or {})
    return Federation(
        model=model,
        data=kw.pop("data", None) or data(clients),
        strategy=strategy,
        client=client,
        seed=seed,
        runs=runs,
        keep=kw.pop("keep", ()),
        masking=kw.pop("masking", None),
        faults=kw.pop("on_purpose", None),
        computing=kw.pop("computing", Computing()),
        entropy=kw.pop("entropy", "seed"),
        ray=kw.pop("ray", RaySettings()),
        settings=Settings(**kw),
    )


def weights(result) -> bytes:
    """All final weights as bytes, for comparing bits."""
    state = result.model.state_dict()
    return b"".join(state[name].cpu().contiguous().numpy().tobytes() for name in sorted(state))
