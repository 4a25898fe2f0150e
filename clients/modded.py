"""Local training inside Flower's mods, the functions that a `ClientApp` wraps around its training.

A mod `mod(message, context, call_next)` gets what a Flower client gets: a message with the record
"arrays", the model by name, and the record "config". It may change it, calls `call_next` for the
reply, with the trained model in "arrays" and the "metrics", and may change that. So attackers are
simulated, such as a client that sends the opposite of what it has learned, or messages are logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict

from fedpriv.federation.client import PARTITION_ID, Client, ClientContext, ClientUpdate
from fedpriv.federation.flower.adapter import SERVER_ROUND, to_flat, to_named
from fedpriv.federation.grids._flwr import SERVER_NODE_ID, as_server
from fedpriv.runtime.vectors import Vectors

Next = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Next], Message]

TRAINING = "local_training"


@dataclass(frozen=True)
class WithMods:
    """A client half that trains locally, inside of mods.

    Where the mods leave the model as it is, the update has the bits of the half without them.

    Args:
        inner: the client half. Others than local training are refused: what they send is no model,
            or carries noise that a mod could take away.
        mods: by names of your choice, the outermost first. In YAML each is a section with the
            function as its `_target_`, and `_partial_: true`.
    """

    inner: Client
    mods: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.inner.action != TRAINING:
            raise ValueError(
                f"inner: {type(self.inner).__name__} answers 'train.{self.inner.action}', and mods "
                "go around local training only: take fedpriv.clients.fedavg.LocalTraining"
            )
        wrong = [name for name, mod in self.mods.items() if not callable(mod)]
        if wrong:
            raise ValueError(f"mods: {', '.join(wrong)}: expected a function, or _partial_: true")

    @property
    def action(self) -> str:
        """That of the inner half."""
        return self.inner.action

    def __getattr__(self, name: str) -> Any:
        """Returns what else the inner half has, such as `follows`."""
        # While it is unpickled, it has no inner half; and many clients at once would pass the mods.
        if name.startswith("__") or name in ("inner", "train_many"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def train(self, context: ClientContext) -> ClientUpdate:
        """Returns the change of the model that the mods' reply amounts to, and its metrics.

        Raises:
            ValueError: if the reply lacks a record, or an array is of another shape.
        """
        named = to_named(context.layout, context.parameters)
        sent = dict(named)  # a mod may change the record itself
        untouched: list[tuple[dict[str, Any], Vectors]] = []
        config = {**context.instruction.settings, SERVER_ROUND: context.instruction.round}

        def train(message: Message, around: Context) -> Message:
            given = message.content.array_records["arrays"]
            seen = context
            if not _same(given, sent):
                parameters = to_flat(context.layout, given, context.parameters)
                context.layout.write(parameters)
                seen = replace(context, parameters=parameters)
            computed = self.inner.train(seen)
            model = {name: old + computed.update[name] for name, old in seen.parameters.items()}
            reply = to_named(context.layout, model)
            if seen is context:
                untouched.append((dict(reply), computed.update))
            metrics = MetricRecord(dict(computed.metrics))
            return Message(RecordDict({"arrays": reply, "metrics": metrics}), reply_to=message)

        chain: Next = train
        for mod in reversed(list(self.mods.values())):
            chain = partial(_call, mod, chain)
        with as_server():
            message = Message(
                RecordDict({"arrays": named, "config": ConfigRecord(config)}),
                SERVER_NODE_ID + 1 + context.client,
                f"train.{self.action}",
            )
            node: dict[str, bool | float | int | str] = {PARTITION_ID: context.client}
            around = Context(1, message.metadata.dst_node_id, node, RecordDict(), {})
            content = chain(message, around).content
        arrays, metrics = content.array_records["arrays"], content.metric_records["metrics"]
        for before, update in untouched:
            if _same(arrays, before):
                return ClientUpdate(update, dict(metrics))  # type: ignore[arg-type]
        model = to_flat(context.layout, arrays, context.parameters)
        change = {name: model[name] - old for name, old in context.parameters.items()}
        return ClientUpdate(change, dict(metrics))  # type: ignore[arg-type]


def _call(mod: Mod, following: Next, message: Message, context: Context) -> Message:
    return mod(message, context, following)


def _same(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Whether two records hold the very same arrays, which cannot be changed in place."""
    return now.keys() == before.keys() and all(now[name] is before[name] for name in now)
