"""Neighbours by a federation's own data path: what its sums lose with one provider.

The canaries of an audit are added beside each other and keep their numbers, so they cannot show
that a unit's schedule or randomness depends on who else is there. Here the federation's documents
are bound once with and once without a provider (`data.leave_out`). Both go through the real client
half, without noise, with everybody drawn, from one model and with one set of coins.
Their sums may differ by what the provider may give, and by nothing else.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
from flwr.app import ConfigRecord
from numpy.typing import NDArray
from torch import nn

from fedpriv.data.document import providers
from fedpriv.data.examples import PROVIDER, provider_number
from fedpriv.federation.audit.axes import HasAxes
from fedpriv.federation.client import Client, build_app
from fedpriv.federation.dataset import DocumentData, FederatedDataset, UnfitData
from fedpriv.federation.grids.inline import InlineGrid
from fedpriv.federation.loop import Federation
from fedpriv.federation.messages import node_ids, sum_of, to_array_record
from fedpriv.federation.private_strategy import PrivateStrategy
from fedpriv.federation.strategy import ATTEMPT, SEED
from fedpriv.runtime import cache
from fedpriv.runtime.torch_state import reproducible_torch, seeded_model
from fedpriv.runtime.vectors import ParameterLayout, on_host

LOOKED_AT = 2
"""Clients whose sums are compared: the provider's own, and the next. What depends on who else is
there changes at all of them."""


def neighbours(federation: Federation, bare: PrivateStrategy, most: int) -> Iterator[float]:
    """Yields how far sums are apart without a provider, as a share of what the ledger counts.

    Left out are the first, the last and others in between of a federation's providers.

    Nothing, where its data are no documents, or its clients add noise to each step of their own.

    Args:
        federation: of documents.
        bare: its strategy, without noise, and with everybody drawn.
        most: so many providers are tried.
    """
    data, bound = federation.data, federation.bound
    names = sorted(providers(bound.documents))
    if not isinstance(data, DocumentData) or bare.own_noise or not names:
        return
    half = cast(HasAxes, federation.client).steepest(bare.mechanism.clip_norm, "loop")
    places = np.linspace(0, len(names) - 1, min(most, len(names))).round().astype(int)
    for name in (names[place] for place in places):
        try:
            less = replace(data, leave_out=(*data.leave_out, name)).bind(
                federation.model, federation.seed
            )
        except UnfitData:  # one client would have nothing left
            continue
        number = provider_number(name)
        own = [np.flatnonzero(bound.train.columns[PROVIDER][rows] == number) for rows in bound.rows]
        client = max(range(len(own)), key=lambda k: own[k].size)
        clients = [(client + more) % len(own) for more in range(min(LOOKED_AT, len(own)))]
        booked = {"provider": 1, "client": 2}.get(bare.mechanism.unit, sum(map(len, own)))
        whole, rest = (
            _sums(federation, replace(bare), half, each, clients) for each in (bound, less)
        )
        yield float(np.linalg.norm(whole - rest)) / booked


def _sums(
    federation: Federation,
    strategy: PrivateStrategy,
    half: Client,
    bound: FederatedDataset,
    clients: list[int],
) -> NDArray[np.float64]:
    """Returns the clients' sums of as many rounds as there are bands, in clip norms.

    A provider has one turn in these rounds, and what it gives there has norm 1 over all of them.
    """
    found = []

    def build() -> nn.Module:
        model = seeded_model(federation.bound.build_model, federation.seed).eval()
        model.train = lambda mode=True: model  # type: ignore[method-assign]  # no dropout
        return model

    with (
        tempfile.TemporaryDirectory(prefix=cache.AUDIT) as memory,
        reproducible_torch(federation.settings.threads, federation.settings.device),
    ):
        layout = ParameterLayout(build())
        strategy.prepare(layout)
        start = layout.read()
        spec = replace(
            federation.spec,
            build_model=build,
            client=half,
            train=bound.train,
            rows=bound.rows,
            key="",
            private=False,
            cohort_batch=1,
            memory=Path(memory),
        )
        grid = InlineGrid(build_app(spec), federation.clients)
        nodes = node_ids(grid)
        asked_of = {nodes[client] for client in clients}
        scale = strategy.mechanism.normaliser / strategy.mechanism.clip_norm
        for round in range(1, strategy.mechanism.bands + 1):
            config = ConfigRecord({SEED: federation.seed, ATTEMPT: 0})
            asked = strategy.configure_train(round, to_array_record(start), config, grid)
            messages = [m for m in asked if m.metadata.dst_node_id in asked_of]
            total = sum_of(grid.send_and_receive(messages)).vectors["float"]
            found.append(on_host(total).astype(np.float64) * scale)
    return np.stack(found)
