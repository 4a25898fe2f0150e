"""The toy federation under a private strategy, importable by workers and by experiment files."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from toy import OutOfLuck, data

from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.examples import PROVIDER
from fedpriv.federation.client import ClientContext, ClientUpdate
from fedpriv.federation.dataset import ArrayData
from fedpriv.training.loops import Optimizer

CLIENTS = 8


def private_data(clients: int = CLIENTS) -> ArrayData:
    """The toy's numbers; every four of a client's in a row are one provider's."""
    plain = data(clients)
    owners = np.concatenate([10 * k + np.arange(len(r)) // 4 for k, r in enumerate(plain.rows)])
    return ArrayData({**plain.train, PROVIDER: owners}, plain.rows, plain.test)


@dataclass(frozen=True)
class FaultyProviders:
    """FL-PROVIDER-DP's client half, except at `faults`: {"round/attempt/client": kind}."""

    action: ClassVar[str] = ProviderUpdates.action

    # Who fails, and how long it takes, changes no message: the noise must stay what it is.
    faults: Mapping[str, str] = field(default_factory=dict, metadata={"message": False})
    pause: float = field(default=0.0, metadata={"message": False})
    inner: ProviderUpdates = field(
        default_factory=lambda: ProviderUpdates(steps=2, optimizer=Optimizer(lr=0.02))
    )

    def train(self, context: ClientContext) -> ClientUpdate:
        time.sleep(self.pause)
        at = f"{context.instruction.round}/{context.instruction.attempt}/{context.client}"
        kind = self.faults.get(at)
        if kind == "raise":
            raise OutOfLuck("the invoice of ACME Ltd could not be read")
        if kind == "exit":
            os._exit(3)
        return self.inner.train(context)
