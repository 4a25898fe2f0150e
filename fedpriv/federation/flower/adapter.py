"""Any strategy that is written for Flower's message API, run by fedpriv's round loop.

`FlowerAdapter` stands between the two. It calls the strategy's own `configure_train` and
`aggregate_train`, unmodified, with the messages that they expect: a record of arrays with the
model's names and shapes, a config, and metrics with the number of examples. To the clients and to
an observer such a run looks like FedAvg's: global vectors go down, changes of the model come up.

A strategy that only averages (`only_sums`) gets one reply a round, the weighted mean of all
clients' models. Workers sum the updates for it, and secure aggregation can hide single ones. All
others get every client's model, one reply each, and are held in memory together, as by Flower.
"""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp import strategy as stock_strategies
from flwr.serverapp.exception import AggregationError, InconsistentMessageReplies
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedpriv.federation.client import Client
from fedpriv.federation.flower import state as flower_state
from fedpriv.federation.flower.checks import StrategyFailed, failed, unfollowed
from fedpriv.federation.grids._flwr import CopiedArray, Run, as_server, readdressed
from fedpriv.federation.messages import (
    METRICS,
    NUM_EXAMPLES,
    UPDATE,
    Instruction,
    RunningSum,
    add_sum,
    instruct,
    to_array_record,
    to_vectors,
)
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.federation.strategy import ATTEMPT, SEED, Strategy
from fedpriv.runtime.seeds import torch_seed
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.runtime.vectors import ParameterLayout, Vectors, as_tensor, over_

TRAIN_LOSS = "train-loss"
SERVER_ROUND = "server-round"
"""The key by which Flower's strategies tell clients the round, which an instruction does anyway."""

MOST_LOOKS = 30
"""How often a strategy may ask in one round who is connected. Flower's asks once a second."""

AVERAGING = (
    stock_strategies.FedAvg,
    stock_strategies.FedAvgM,
    stock_strategies.FedProx,
    stock_strategies.FedAdagrad,
    stock_strategies.FedAdam,
    stock_strategies.FedYogi,
)
"""Flower's strategies that use clients' models only in their weighted mean."""

NOISY = (
    stock_strategies.DifferentialPrivacyClientSideAdaptiveClipping,
    stock_strategies.DifferentialPrivacyClientSideFixedClipping,
    stock_strategies.DifferentialPrivacyServerSideAdaptiveClipping,
    stock_strategies.DifferentialPrivacyServerSideFixedClipping,
)
TREES = (stock_strategies.FedXgbBagging, stock_strategies.FedXgbCyclic)


def adapted(strategy: FlowerStrategy, client: Client, *, masked: bool) -> Strategy:
    """Returns the strategy itself if it is fedpriv's, and a strategy of Flower's in an adapter.

    Args:
        strategy: of either kind.
        client: the client half, whose settings from the server must be those of the strategy.
        masked: whether secure aggregation hides single updates.

    Raises:
        TypeError: if it is neither.
    """
    if isinstance(strategy, Strategy):
        return strategy
    if isinstance(strategy, FlowerStrategy):
        return FlowerAdapter(strategy, client, masked=masked)
    raise TypeError(
        f"strategy: {type(strategy).__module__}.{type(strategy).__qualname__} is neither a "
        "strategy of fedpriv nor one of flwr.serverapp.strategy, which exchanges messages"
    )


def only_sums(strategy: FlowerStrategy) -> bool:
    """Whether a strategy uses the clients' models and metrics only in their weighted means.

    True of Flower's own that average, and of those derived from them that aggregate in the same
    way. A strategy of yours says so in an attribute `only_sums = True`.
    """
    if not isinstance(strategy, stock_strategies.FedAvg):
        return bool(getattr(strategy, "only_sums", False))
    averages = type(strategy).aggregate_train in {kind.aggregate_train for kind in AVERAGING}
    usual = strategy.train_metrics_aggr_fn is stock_strategies.FedAvg().train_metrics_aggr_fn
    return bool(getattr(strategy, "only_sums", averages and usual))


class FlowerAdapter(Strategy):
    """A strategy of Flower's as a strategy of fedpriv.

    Cohorts are drawn by the strategy's own code, from the run's seed. Its state (see
    `fedpriv.federation.flower.state`) goes into checkpoints; a strategy with other state has
    methods `state` and `load_state`, as in `fedpriv.federation.strategy.Strategy`. Clients are not
    asked to evaluate: fedpriv evaluates the global model itself. The strategy gets integer buffers
    as float64; what it makes is rounded to the model's own types.

    Args:
        stock: the strategy. It is copied, if it can be, so that one object can be given to several
            federations.
        client: the client half. It names the settings that it follows in a class variable
            `follows`, such as FedProx's "proximal-mu".
        masked: whether secure aggregation hides single updates. All clients have equal weights
            then, and buffers do not travel.
    """

    action: ClassVar[str] = "local_training"

    def __init__(self, stock: FlowerStrategy, client: Client, *, masked: bool = False) -> None:
        try:
            self.stock = copy.deepcopy(stock)
        except Exception:  # it holds what cannot be copied, such as an open file
            self.stock = stock
        self.client, self.masked = client, masked
        self.buffers = not masked  # Flower's clients send whole state_dicts
        self.summed = only_sums(stock)

    # What does not work, before training

    def problems(self, clients: int) -> list[str]:
        """Returns why the strategy cannot run on so many clients, or not with these parts."""
        kind = type(self.stock)
        name = f"_target_={kind.__module__}.{kind.__qualname__}"
        if isinstance(self.stock, NOISY):
            return [
                f"{name}: the ledger cannot account for the noise that it adds; take "
                "strategy=dp_fedavg, which clips clients' updates and states ε, or "
                "strategy=fl_provider_dp"
            ]
        if isinstance(self.stock, TREES):
            return [f"{name}: it grows trees, and fedpriv trains models by their gradients"]
        if self.masked and not self.summed:
            averaging = ", ".join(kind.__name__ for kind in AVERAGING)
            return [
                f"{name}: it compares single clients, which masking=on hides; take masking=off, or "
                f"a strategy that only averages ({averaging})"
            ]
        if (key := getattr(self.stock, "weighted_by_key", NUM_EXAMPLES)) != NUM_EXAMPLES:
            return [f"weighted_by_key={key!r}: clients send {NUM_EXAMPLES!r}; leave it out"]
        share = getattr(self.stock, "fraction_train", 1.0)
        fewest = {n: getattr(self.stock, n, 0) for n in ("min_available_nodes", "min_train_nodes")}
        if not 0 < share <= 1:
            return [f"fraction_train={share}: expected a share of the clients in (0, 1]"]
        return [
            f"{setting}={least}: the federation has {clients} client{'s' * (clients != 1)}"
            for setting, least in fewest.items()
            if least > clients
        ] or self._rehearse(name, clients)

    def _rehearse(self, name: str, clients: int) -> list[str]:
        """Lets a copy of the strategy aggregate made-up answers of everybody that it asks."""
        try:
            stock = copy.deepcopy(self.stock)
        except Exception:
            return []
        before, asked = dict(vars(stock)), []
        arrays = ArrayRecord({"rehearsal": Array(np.zeros(2, np.float32))})
        with isolated_randomness(0), as_server(), _heard() as warnings:
            try:
                roster = Roster(range(2, 2 + clients))
                asked = list(stock.configure_train(1, arrays, ConfigRecord(), roster))
                told = {key for message in asked for key in _parts(message)[1]}
                metrics = MetricRecord({NUM_EXAMPLES: 1, TRAIN_LOSS: 1.0})
                replies = [
                    Message(
                        RecordDict({"arrays": arrays.copy(), "metrics": metrics}), reply_to=message
                    )
                    for message in (asked[:1] if self.summed else asked)
                ]
                moved, _ = stock.aggregate_train(1, replies)
            except Exception as error:
                why = str(error).splitlines()[0] if str(error) else ""
                return [
                    f"{name}: cannot aggregate the answers of {len(asked)} clients: "
                    f"{type(error).__name__}: {why}"
                ]
        found = [
            f"{name}: {unfollowed(key, self.client)}"
            for key in sorted(told - set(getattr(self.client, "follows", ())))
        ]
        if asked and moved is None and type(self.stock).__module__.startswith("flwr."):
            reason = warnings[-1] if warnings else "it returned no model"
            found.append(f"{name}: the answers of {len(asked)} clients do not move it: {reason}")
        lost = [
            key
            for key, value in vars(stock).items()
            if value is not before.get(key, stock) and not flower_state.can_be_saved(value)
        ]
        if lost and not hasattr(self.stock, "state"):
            found.append(
                f"{name}: no checkpoint can hold what it keeps in {', '.join(lost)}; give it "
                "methods state() and load_state(), as fedpriv.federation.strategy.Strategy has"
            )
        return found

    # A round

    def prepare(self, layout: ParameterLayout) -> None:
        """Learns the names and shapes of the tensors that travel."""
        self._layout = layout

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Lets the strategy draw its cohort, and sends what it sends, in the order of clients."""
        self._arrays, self._seed = arrays, int(str(config[SEED]))
        self._attempt = int(str(config[ATTEMPT]))
        named = to_named(self._layout, to_vectors(arrays))
        nodes = list(grid.get_node_ids())
        with self._calling("configure", server_round):
            asked = self.stock.configure_train(server_round, named, ConfigRecord(), Roster(nodes))
            asked = sorted(asked, key=lambda message: nodes.index(message.metadata.dst_node_id))
        messages = []
        for message in asked:
            try:
                sent, settings = _parts(message)
                flat = arrays
                if sent is not named:
                    flat = to_array_record(to_flat(self._layout, sent, to_vectors(arrays)))
            except ValueError as error:
                raise StrategyFailed(self.stock, server_round, str(error)) from error
            instruction = Instruction(
                server_round,
                self._attempt,
                summed=self.summed,
                weight="" if self.masked else NUM_EXAMPLES,
                buffers=self.buffers,
                metrics=(TRAIN_LOSS,) if self.masked else (NUM_EXAMPLES, TRAIN_LOSS),
                settings=settings,
            )
            node, kind = message.metadata.dst_node_id, f"train.{self.action}"
            content = instruct(flat, instruction)
            messages.append(grid.create_message(content, kind, node, str(server_round)))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hands the strategy all replies; returns its new model in the model's own types.

        Raises:
            TooFewClients: if the strategy says that it cannot aggregate them.
        """
        answers = list(self._mean(replies) if self.summed else self._single(replies))
        with self._calling("aggregate", server_round):
            try:
                answer = self.stock.aggregate_train(server_round, answers)
                if not isinstance(answer, tuple) or len(answer) != 2:
                    why = f"aggregate_train returned {answer!r:.60}: expected arrays and metrics"
                    raise StrategyFailed(self.stock, server_round, why)
                arrays, metrics = answer
                start = to_vectors(self._arrays)
                flat = None if arrays is None else to_flat(self._layout, arrays, start)
            except (AggregationError, InconsistentMessageReplies) as error:
                name = type(self.stock).__name__
                raise TooFewClients(f"{name} cannot aggregate the answers: {error}") from error
        return None if flat is None else to_array_record(flat), metrics

    def _single(self, replies: Iterable[Message]) -> Iterator[Message]:
        """Yields each client's reply with its model w + Δ_k, and error replies as they are."""
        start = to_vectors(self._arrays)
        for reply in replies:
            if reply.has_error():
                yield reply
                continue
            update = to_vectors(reply.content.array_records[UPDATE])
            metrics = dict(reply.content.metric_records[METRICS])
            if metrics[NUM_EXAMPLES]:  # a client without examples has trained nothing
                model = {name: old + update[name] for name, old in start.items()}
                yield readdressed(self._answer(model, metrics), reply)

    def _mean(self, replies: Iterable[Message]) -> Iterator[Message]:
        """Yields one reply with the weighted mean of the models, w + Σ n_k Δ_k / n, after errors.

        Where the weights are equal, because updates are masked, n_k is 1.
        """
        total, first = RunningSum(), None
        for reply in replies:
            if reply.has_error():
                yield reply
                continue
            add_sum(total, reply)
            first = first or readdressed(RecordDict(), reply)
            del reply  # or it would be there while the next clients train
        weights = total.metrics.get(NUM_EXAMPLES, [1] * len(total.clients))
        if first is None or not sum(weights):
            return
        start = to_vectors(self._arrays)
        model: Vectors = {}
        for name, old in start.items():
            whole = not old.is_floating_point()  # whose mean need not be a whole number
            mean = total.vectors[name].double() if whole else total.vectors[name].clone()
            model[name] = old + over_(mean, sum(weights))
        loss = float(np.average(total.metrics[TRAIN_LOSS], weights=weights))
        metrics = {NUM_EXAMPLES: sum(weights), TRAIN_LOSS: loss}
        yield readdressed(self._answer(model, metrics), first)

    def _answer(self, model: Vectors, metrics: Mapping[str, Any]) -> RecordDict:
        return RecordDict(
            {"arrays": to_named(self._layout, model), "metrics": MetricRecord(dict(metrics))}
        )

    @contextmanager
    def _calling(self, what: str, round: int) -> Iterator[None]:
        """Surrounds a call of the strategy's.

        It seeds the global generators, from which Flower's strategies draw. And it hides all that
        exists from the garbage collector: some of them collect after each array that they take out
        of a record, which takes 40 ms where there are many objects, and next to nothing so.
        """
        purpose = f"strategy, {what}, attempt {self._attempt}"
        gc.freeze()
        try:
            with isolated_randomness(torch_seed(self._seed, purpose, round)), _heard():
                yield
        except (TooFewClients, StrategyFailed):
            raise
        except Exception as error:
            raise failed(self.stock, round, error) from error
        finally:
            gc.unfreeze()

    # What is saved

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the strategy's attributes, such as Adam's moments, as arrays."""
        if hasattr(self.stock, "state"):
            own: dict[str, NDArray[Any]] = self.stock.state()
            return own
        return flower_state.to_arrays(vars(self.stock))

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores the strategy's attributes."""
        if hasattr(self.stock, "load_state"):
            self.stock.load_state(state)
        else:
            vars(self.stock).update(flower_state.to_attributes(state))


class Roster(Grid):
    """The grid that a strategy of Flower's draws its cohort from: a list of nodes, and no line.

    What it sends, it returns from `configure_train`, so that an observer sees all of it.

    Args:
        nodes: all ids.
    """

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes, self._looks = list(nodes), 0

    def get_node_ids(self) -> Iterable[int]:
        """Returns the ids of all nodes.

        Raises:
            ValueError: if it is asked again and again: nobody else will connect.
        """
        self._looks += 1
        if self._looks > MOST_LOOKS:
            raise ValueError(f"it waits for more nodes than the {len(self._nodes)} that there are")
        return list(self._nodes)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Returns a message from the server to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def _no_line(self, *arguments: Any, **settings: Any) -> NoReturn:
        raise ValueError("a strategy returns its messages from configure_train, and sends none")

    set_run = push_messages = pull_messages = send_and_receive = _no_line

    @property
    def run(self) -> Run:
        """No run: the strategy knows its clients only."""
        self._no_line()


def to_named(layout: ParameterLayout, vectors: Vectors) -> ArrayRecord:
    """Returns vectors as Flower's strategies know models: arrays by name, in their shapes.

    Integers become float64: means of them are no integers, and some strategies change arrays in
    place.

    Args:
        layout: of the model.
        vectors: of its tensors that travel.
    """
    record = ArrayRecord()
    for name, tensor in layout.named(vectors).items():
        whole = not tensor.is_floating_point()
        record[name] = CopiedArray((tensor.double() if whole else tensor).cpu().numpy())
    return record


def to_flat(layout: ParameterLayout, record: ArrayRecord, like: Vectors) -> Vectors:
    """Returns named arrays as vectors, the inverse of `to_named`, in the model's own types.

    Args:
        layout: of the model.
        record: arrays with the names and shapes of the model's tensors, of any type.
        like: vectors of the model.

    Raises:
        ValueError: if names or shapes are not those of the model.
    """
    tensors, named = layout.named(like), {}
    for name, array in record.items():
        numbers: NDArray[Any] = np.asarray(array.numpy())
        shape = tuple(tensors[name].shape) if name in tensors else numbers.shape
        if numbers.shape != shape:
            raise ValueError(f"{name} has shape {numbers.shape}, and {shape} in the model")
        if name in tensors and not tensors[name].is_floating_point():
            numbers = np.asarray(np.rint(numbers))
        named[name] = as_tensor(numbers)
    device = next(iter(like.values())).device
    return {name: vector.to(device) for name, vector in layout.vectors(named).items()}


def _parts(message: Message) -> tuple[ArrayRecord, dict[str, Any]]:
    """Returns the arrays of a strategy's message, and the settings beside them.

    Raises:
        ValueError: if it asks for something else than training, has no arrays, or several records
            of them.
    """
    kind = message.metadata.message_type
    if kind.partition(".")[0] != MessageType.TRAIN:
        told = "clients answer to 'train' alone, since fedpriv evaluates on held-out documents"
        raise ValueError(f"it sends a message of the type {kind!r}: {told}")
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise ValueError(f"its messages have {len(records)} records of arrays, expected one")
    settings: dict[str, Any] = {}
    for config in message.content.config_records.values():
        settings |= {key: value for key, value in config.items() if key != SERVER_ROUND}
    return records[0], settings


@contextmanager
def _heard() -> Iterator[list[str]]:
    """Keeps what Flower logs in a list, and from the terminal: how many it sampled, and who failed.

    The run folder has both. Only warnings are kept.
    """
    warnings: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            warnings.append(record.getMessage())
        return False

    logger = logging.getLogger("flwr")
    logger.addFilter(keep)
    try:
        yield warnings
    finally:
        logger.removeFilter(keep)
