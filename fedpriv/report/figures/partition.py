"""A partition as horizontal stacked bars: a bar is a client, a block a provider's documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fedpriv.report.figures.canvas import SHADES
from fedpriv.report.figures.charts import Key
from fedpriv.report.wording import counted

MOST_BARS, MOST_BLOCKS = 300, 4000


@dataclass(frozen=True)
class Block:
    """A provider's documents at one client: `shade` is its colour, an index."""

    provider: str
    documents: int
    shade: int


@dataclass(frozen=True)
class Bar:
    """A client: its blocks, and its length in percent of the longest bar."""

    client: str
    documents: int
    providers: int
    percent: float
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Bars:
    """The partition as horizontal stacked bars.

    Attributes:
        bars: one per client, or the `len(bars)` largest of `clients`.
        clients: number of clients.
        longest: documents of the largest client.
        density: "roomy", "thin" or "dense": how much room a bar has.
        shared: whether a provider's documents are at several clients.
        keys: colour of each provider where every provider has its own.
        lumped: whether small providers of a client are drawn as one block.
    """

    bars: tuple[Bar, ...]
    clients: int
    longest: int
    density: str
    shared: bool
    keys: tuple[Key, ...]
    lumped: bool


def client_order(client: str) -> tuple[int, int, str]:
    """Returns the sorting key of a client's name: numbers by value, then texts."""
    digits = client.isascii() and client.isdigit() and len(client) < 20
    return (0, int(client), "") if digits else (1, 0, client)


def partition_bars(clients: Mapping[str, Mapping[str, int]]) -> Bars:
    """Returns the picture of a partition.

    Args:
        clients: client -> provider -> number of documents; at least one client.
    """
    totals, homes = Counter[str](), Counter[str]()
    for held in clients.values():
        totals.update(held)
        homes.update(held.keys())
    shared = any(count > 1 for count in homes.values())
    order = {name: at for at, name in enumerate(sorted(totals, key=lambda p: (-totals[p], p)))}
    size = {client: sum(held.values()) for client, held in clients.items()}
    longest = max(size.values())
    largest = sorted(clients, key=lambda client: (-size[client], client_order(client)))
    shown = sorted(largest[:MOST_BARS], key=client_order)
    most = max(MOST_BLOCKS // len(shown), 3)
    bars = tuple(
        Bar(
            client,
            size[client],
            len(clients[client]),
            100 * size[client] / max(longest, 1),
            _blocks(clients[client], order, most, shared),
        )
        for client in shown
    )
    named = shared and len(order) <= SHADES
    keys = tuple(Key(provider, shade) for provider, shade in order.items()) if named else ()
    density = "roomy" if len(shown) <= 12 else "thin" if len(shown) <= 40 else "dense"
    lumped = any(len(held) > most for held in clients.values())
    return Bars(bars, len(clients), longest, density, shared, keys, lumped)


def _blocks(
    held: Mapping[str, int], order: Mapping[str, int], most: int, shared: bool
) -> tuple[Block, ...]:
    """Returns a client's providers in the common order; those beyond `most` become one block."""
    ordered = sorted((provider for provider in held if held[provider]), key=lambda p: order[p])
    # A provider that is at one client needs no colour of its own, only another than its neighbour.
    blocks = [
        Block(provider, held[provider], order[provider] % SHADES if shared else place % 3)
        for place, provider in enumerate(ordered[:most])
    ]
    rest = ordered[most:]
    if rest:
        label = counted(len(rest), "further supplier")
        blocks.append(Block(label, sum(held[provider] for provider in rest), SHADES))
    return tuple(blocks)
