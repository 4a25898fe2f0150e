"""Which client holds provider P? Asked by a server that follows the protocol and looks closely.

Beyond Tito et al. 2023, whose attacker sees the final model only. The server knows the parameters
w_t that it sent in round t, and what came back. With documents of P that nobody trained on, it
measures how far a change u of the model serves P:

    cosine, inner_product:  <u, -g(w_t)>, with g the gradients of the loss on P's examples
    loss_drop:              log L_P(w_t) - log L_P(w_t + u)
    touched:                the share of P's words whose row of the table of words u moves at all,
                            each word counted by how few clients move it

`target="update"` compares the clients, so that everything that is no matter of membership cancels:
how hard P is shifts a row of the table providers × clients, how much a client has learnt scales a
column. A client that serves P better than the other clients do has seen P. The table of words alone
is telling: whoever never read a provider's name and address hardly moves their rows.

`target="sum"` looks at the mean update of all clients that do not collude with the server. Under
masking it is what the server can learn with the colluders' help, and the providers are compared
with each other.

`target="series"` needs no single update, and so works against masking: u is the change from one
global model to the next, and the providers are compared with each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor, nn

from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.rest_of_sums import mean_of_others, nobody_left
from fedpriv.attacks.text.words_moved import moved, table_of, table_of_words, telling_table
from fedpriv.data.examples import Examples
from fedpriv.models.base import ExampleLosses
from fedpriv.models.readers.reader import tokens_of
from fedpriv.runtime.torch_state import reproducible_torch
from fedpriv.runtime.workers.fork_server import fork_server
from fedpriv.runtime.workers.jobs import Pool
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.threat.access import (
    Architecture,
    ColludingTranscript,
    HeldOutDocuments,
    Transcript,
)
from fedpriv.threat.attack import AttackContext, NotApplicable, Outline
from fedpriv.threat.checks import check_choices, check_least, check_share
from fedpriv.threat.claims import MEMBER, NON_MEMBER, MembershipScores
from fedpriv.threat.surfaces.transcript import Kind, Round, Upload, loaded
from fedpriv.training.per_example import each_gradient

Named = Mapping[str, Tensor]
"""Tensors by the name of a parameter."""
Table = NDArray[np.float64]
"""One row for each provider, one column for each change of the model."""

Statistic = Literal["loss_drop", "cosine", "inner_product", "touched", "cosine_and_touched"]

TOUCHED = ("touched", "cosine_and_touched")

FEWEST_CLIENTS = 3
"""With fewer, the clients that do not hold a provider are no sample to compare with."""

FEWEST_PROVIDERS = 4
"""Through so few, a line would explain all."""

PARTS_OF_A_WORKER = 4
"""Parts of the providers for each worker, so that none waits long for the others at the end."""

TINY = 1e-9
"""Added to a loss, which may be 0, before its logarithm is taken."""

TO_DEVIATION = 1.4826
"""Of a Gaussian, standard deviation ÷ median absolute deviation."""


@dataclass(frozen=True)
class ServerMembershipAccess:
    """What the server saw, and documents of the providers."""

    transcript: Transcript
    architecture: Architecture
    held_out: HeldOutDocuments


@dataclass(frozen=True)
class ColludingAccess(ServerMembershipAccess):
    """The same, and what colluding clients told the server."""

    transcript: ColludingTranscript


@dataclass(frozen=True)
class ServerMembership:
    """Judges providers by the updates of single clients, or by the series of global models.

    On held-out receipts (SROIE, LayoutLMv3, six clients, eight seeds) the words that a client moved
    at all told more than the cosine of how it moved them, and both together were best or next to it
    on all data that were tried; see docs/papers/pfl_docvqa.md. A table of words that also scores
    the answer, as VT5's, moves in all rows: there the cosine stands alone.

    With few providers, more non-members are taken for members than `false_positives` says, since
    their spread is estimated: of 5 % that were asked for, noise of six clients gave 11 % with 24
    providers, 8 % with 48 and 6 % with 200.

    Args:
        target: what is looked at: "update", the clients' single updates, which must not be masked;
            "sum", the mean update of the clients that do not collude, in each round (without
            colluders that of all clients); or "series", the change from one global model to the
            next, which needs two models.
        statistic: how well a change u of the model fits a provider's examples: "cosine", the mean
            cosine between u and the negative gradients of the examples; "inner_product", their mean
            inner product; "loss_drop", by how much u lowers the logarithm of the loss; "touched",
            the share of the provider's words whose rows a client moved at all, rare words counting
            more; or "cosine_and_touched", the sum of both. Clients that send gradients have no
            "loss_drop", because nobody knows the length of their step. None takes
            "cosine_and_touched" for updates ("cosine" where all rows of the table move), "cosine"
            for sums of gradients, and "loss_drop" for other sums and for a series.
        parameters: the parameters that "cosine" and "inner_product" compare: "words", the largest
            trained table of embeddings (all parameters if there is none), or "all".
        batch_size: the number of examples that are computed at once, where their gradients need not
            be told apart. It changes the memory that is needed, not the scores.
        false_positives: about the share of the non-members that are taken for members, where three
            or more clients are compared one by one. With few providers the true share is higher.
        workers: the number of processes that compute the gradients of "cosine" side by side, on a
            CPU. 0 computes them in this process. It does not change the scores.
    """

    target: Literal["update", "sum", "series"] = "update"
    statistic: Statistic | None = None
    parameters: Literal["words", "all"] = "words"
    batch_size: int = 32
    false_positives: float = 0.05
    workers: int = 0

    def __post_init__(self) -> None:
        check_choices(self)
        if self.statistic in TOUCHED and self.target != "update":
            raise ValueError(
                f"statistic={self.statistic!r} compares what clients moved: expected another one "
                f"for target={self.target!r}, or target='update'"
            )
        check_least(self, 1, "batch_size")
        check_least(self, 0, "workers")
        check_share(self, "false_positives")

    @property
    def access_type(self) -> type[ServerMembershipAccess]:
        """What the target needs; what colluding clients told is for the sum without them."""
        return ColludingAccess if self.target == "sum" else ServerMembershipAccess

    @property
    def view(self) -> str:
        """The view of the ledger that speaks of what is looked at, for an audit.

        For "sum" the cautious one: how many clients collude is not known here, and what a server
        without masks sees is more than any number of colluders can tell one with masks.
        """
        return "global" if self.target == "series" else "server_plain"

    def suits(self, outline: Outline) -> None:
        """Asks whether the model tells losses of examples, and whether updates can be read."""
        _with_losses(outline.model)
        if self.target == "update" and outline.masked:
            raise _no_update()

    def run(self, access: ServerMembershipAccess, context: AttackContext) -> MembershipScores:
        """Returns the scores of all providers.

        Raises:
            NotApplicable: if the transcript lacks the target, the clients sent gradients and their
                loss_drop is asked for, or the models or updates are not finite.
            ValueError: if the transcript is of another model.
        """
        model = access.architecture.build().eval()
        statistic = self._chosen(access.transcript, model)
        parallel = (
            statistic in ("cosine", "cosine_and_touched")
            and next(model.parameters()).device.type == "cpu"
        )
        workers = self.workers if parallel else 0
        if workers:
            fork_server()  # imports what the workers need while the pages are encoded
        reads = _with_losses(model)
        pages = {name: reads.encode(own) for name, own in access.held_out.documents.items()}
        table = table_of_words(model) if self.parameters == "words" else []
        names = tuple(table or trained(model))
        scale = Scale(
            reads, access.transcript.frozen, pages, statistic, names, self.batch_size, workers
        )
        by = {"update": self._by_client, "sum": self._by_sum, "series": self._by_series}
        return by[self.target](access.transcript, scale, context)

    def _chosen(self, view: Transcript, model: nn.Module) -> Statistic:
        """Returns the statistic, as far as None leaves it to target, messages and model.

        Raises:
            NotApplicable: if it is of the rows that were moved, and all are.
        """
        told = telling_table(model) is not None
        if self.statistic in TOUCHED:
            table_of(model)
        gradients = any(seen.kind == "gradient" for seen in view.rounds)
        cosine = self.target == "update" or (self.target == "sum" and gradients)
        if self.statistic is None and self.target == "update" and told:
            return "cosine_and_touched"
        return self.statistic or ("cosine" if cosine else "loss_drop")

    def _by_client(
        self, view: Transcript, scale: Scale, context: AttackContext
    ) -> MembershipScores:
        clients = sorted({u.client for seen in view.rounds for u in _readable(seen)})
        if not clients:
            raise _no_update()
        found = []
        if scale.statistic != "touched":
            tables = [self._served(seen, clients, scale, context) for seen in view.rounds]
            found.append(together(tables))
        if scale.statistic in TOUCHED:
            found.append(standardised(touched(view, clients, scale)))
        ratings = np.sum(found, axis=0)
        rounds = f"{len(view.rounds)} round{'s' * (len(view.rounds) != 1)}"
        context.remarks.notes.append(
            f"of {len(clients)} clients in {rounds}, the one whose updates fit best is named"
        )
        if len(clients) < FEWEST_CLIENTS:
            scores = ratings.max(axis=1)
            guessed = upper_group(scores)
            context.remarks.notes.append(
                f"{len(clients)} clients are too few to compare one with the others: suppliers "
                "are compared with each other"
            )
        else:
            ratings = against_others(ratings)
            scores = ratings.max(axis=1)
            guessed = scores > highest_of_nobody(len(clients), self.false_positives)
        held = np.where(guessed, np.array(clients)[ratings.argmax(axis=1)], -1)
        return scale.claim("server_update", scores, guessed, held)

    def _served(
        self, seen: Round, clients: Sequence[int], scale: Scale, context: AttackContext
    ) -> Table:
        """Returns how far each client's update of a round serves each provider; NaN without one."""
        table, uploads = np.full((len(scale.pages), len(clients)), np.nan), _readable(seen)
        if uploads:
            context.log(f"round {seen.round}: {len(uploads)} clients, {len(table)} suppliers")
            columns = [clients.index(upload.client) for upload in uploads]
            table[:, columns] = scale.served(
                seen.parameters, [_way(u.kind, u.tensors, scale) for u in uploads]
            )
        return table

    def _by_sum(self, view: Transcript, scale: Scale, context: AttackContext) -> MembershipScores:
        """Returns scores by the mean updates of the clients that do not collude.

        A loss_drop is that from the first observed model to where these means alone would have
        moved it, summed up to each round: later models have begun to tell who is a member. That is
        the path of a server which adds the mean to its model. Another step, such as an optimiser's,
        changes the scale, which the comparison of providers with each other takes out up to the
        curvature of the loss. Rounds that were not observed are missing in the path.
        """
        means = [(seen, mean_of_others(view, seen)) for seen in view.rounds]
        there = [(seen, mean) for seen, mean in means if mean]
        if not there:
            raise NotApplicable(nobody_left(view))
        path: dict[str, Tensor] = {}
        tables = []
        for seen, mean in there:
            context.log(f"round {seen.round}: the sum, {len(scale.pages)} suppliers")
            begun, way = seen.parameters, _way(seen.kind, mean, scale)
            if scale.statistic == "loss_drop":
                path = {name: change + path.get(name, 0) for name, change in way.items()}
                begun, way = there[0][0].parameters, path
            tables.append(scale.served(begun, [way]))
        scores = together(tables)[:, 0]
        left = [len(set(seen.answered) - view.colluders) for seen, _ in there]
        many = f"{min(left)}" if min(left) == max(left) else f"{min(left)} to {max(left)}"
        context.remarks.notes.append(
            f"over the mean updates of {many} client{'s' * (max(left) != 1)} that do not collude, "
            f"in {len(there)} round{'s' * (len(there) != 1)}"
        )
        return scale.claim("server_sum", scores, upper_group(scores))

    def _by_series(
        self, view: Transcript, scale: Scale, context: AttackContext
    ) -> MembershipScores:
        # Losses are compared with the first: later ones have begun to tell who is a member.
        from_first = scale.statistic == "loss_drop"
        begun = view.rounds[:1] * (len(view.rounds) - 1) if from_first else view.rounds[:-1]
        steps = list(zip(begun, view.rounds[1:], strict=True))
        if not steps:
            raise NotApplicable(
                "one global model only was observed, and a series needs two: attack more rounds "
                "(rounds=null), of a run that kept them (keep.transcript.rounds=null)"
            )
        tables = []
        for before, after in steps:
            context.log(f"rounds {before.round} to {after.round}: {len(scale.pages)} suppliers")
            change = {n: after.parameters[n] - old for n, old in before.parameters.items()}
            tables.append(scale.served(before.parameters, [change]))
        scores = together(tables)[:, 0]
        context.remarks.notes.append(
            f"over the {len(view.rounds)} global models that were observed"
        )
        return scale.claim("server_series", scores, upper_group(scores))


@dataclass(frozen=True)
class Scale:
    """Measures how far changes of a model serve each provider.

    Attributes:
        model: of the federation's architecture.
        frozen: what of its state does not travel.
        pages: each provider's examples.
        statistic: see `ServerMembership`.
        names: of the parameters whose gradients are compared.
        batch_size: examples at once.
        workers: processes that share the providers; 0 for this one alone.
    """

    model: ExampleLosses
    frozen: Named
    pages: Mapping[str, Examples]
    statistic: Statistic
    names: tuple[str, ...]
    batch_size: int
    workers: int = 0

    def served(self, parameters: Named, changes: Sequence[Named]) -> Table:
        """Returns how far each change of these parameters serves each provider.

        Shape (providers, changes).
        """
        if self.statistic == "loss_drop":
            return self._drops(parameters, changes)
        loaded(self.model, parameters, self.frozen)
        flat = torch.stack([_flat(change, self.names) for change in changes]).to(self.model.device)
        if self.statistic != "inner_product":
            flat = nn.functional.normalize(flat)
        found = self._side_by_side(flat) if self.workers else self.alignments(flat)
        return _finite(np.stack([found[name] for name in self.pages]), "updates and gradients")

    def alignments(self, flat: Tensor) -> dict[str, NDArray[np.float64]]:
        """Returns the mean <u, -g> over each provider's examples with each change, (changes,)."""
        return {name: self._alignment(examples, flat) for name, examples in self.pages.items()}

    def _side_by_side(self, flat: Tensor) -> dict[str, NDArray[np.float64]]:
        """Returns the same, by workers, each of which gets some providers at a time."""
        names, parts = list(self.pages), PARTS_OF_A_WORKER * self.workers
        jobs = {}
        for part in range(min(parts, len(names))):
            some = {name: self.pages[name] for name in names[part::parts]}
            jobs[f"part {part}"] = Part(replace(self, pages=some), flat, torch.get_num_threads())
        found = Pool(self.workers, RaySettings(), lambda line: None).map(aligned, jobs)
        return {name: row for of_part in found.values() for name, row in of_part.items()}

    def _alignment(self, examples: Examples, flat: Tensor) -> NDArray[np.float64]:
        """Returns the mean over the examples of <u, -g>, (changes,); for a cosine, g of length 1.

        Args:
            examples: of one provider.
            flat: the changes u, (changes, values).
        """
        device = self.model.device
        total = torch.zeros(len(flat), dtype=torch.float64, device=device)
        if self.statistic != "inner_product":
            for slopes in each_gradient(self.model, examples, self.names, device):
                slopes = nn.functional.normalize(slopes)
                total -= (flat @ slopes.T).double().sum(1)
            return total.cpu().numpy() / len(examples)
        for start in range(0, len(examples), self.batch_size):
            places = np.arange(start, min(start + self.batch_size, len(examples)))
            slope = _flat(gradient_of(self.model, examples.batch(places, device)), self.names)
            total -= len(places) * (flat @ slope).double()
        return total.cpu().numpy() / len(examples)

    def _drops(self, parameters: Named, changes: Sequence[Named]) -> Table:
        before = self._log_losses(parameters)
        after = []
        for change in changes:
            moved = {n: t + change[n] if n in change else t for n, t in parameters.items()}
            after.append(self._log_losses(moved))
        return unexplained(before[:, None] - np.stack(after, axis=1), before)

    def _log_losses(self, parameters: Named) -> NDArray[np.float64]:
        """Returns the logarithm of the mean loss on each provider's documents."""
        loaded(self.model, parameters, self.frozen)
        means = []
        with torch.no_grad():
            for examples in self.pages.values():
                batches = examples.batches(self.batch_size, device=self.model.device)
                means.append(
                    torch.cat([self.model.losses(batch) for batch in batches]).double().mean()
                )
        return np.log(_finite(torch.stack(means).cpu().numpy(), "losses") + TINY)

    def claim(
        self,
        name: str,
        scores: NDArray[np.float64],
        guessed: NDArray[np.bool_],
        clients: NDArray[np.int64] | None = None,
    ) -> MembershipScores:
        """Returns scores of all providers, and who is said to be a member, as a claim."""
        guesses = np.where(guessed, MEMBER, NON_MEMBER).astype(np.int8)
        return MembershipScores(tuple(self.pages), scores, guesses, name, clients=clients)


@dataclass(frozen=True)
class Part:
    """Some of the providers, for a worker.

    Attributes:
        scale: with their pages alone, and the model's parameters in place.
        flat: the changes, (changes, values).
        threads: of torch.
    """

    scale: Scale
    flat: Tensor
    threads: int


def aligned(part: Part) -> dict[str, NDArray[np.float64]]:
    """Returns how far the changes serve the providers of a part."""
    with reproducible_torch(part.threads, "cpu"):
        return part.scale.alignments(part.flat)


def _with_losses(model: nn.Module) -> ExampleLosses:
    if not isinstance(model, ExampleLosses):
        raise NotApplicable(
            f"{type(model).__name__} does not tell its loss example by example: it needs a method "
            "`losses`, which the models of fedpriv have"
        )
    return model


def _no_update() -> NotApplicable:
    return NotApplicable(
        "no update can be read: take attack.target=series or attack.target=sum against masking",
        take="attack.target=sum",
    )


def _finite(values: NDArray[np.float64], of_what: str) -> NDArray[np.float64]:
    """Returns the values, if all are finite."""
    if not np.isfinite(values).all():
        raise NotApplicable(
            f"the model's {of_what} are not finite: has the training diverged? Then lower its "
            "learning rate"
        )
    return values


def _readable(seen: Round) -> list[Upload]:
    return [upload for upload in seen.uploads if upload.kind != "masked"]


def _way(kind: Kind, update: Named, scale: Scale) -> Named:
    """Returns the change of the model that an update asks for, up to its length."""
    if kind == "delta":
        return update
    if scale.statistic == "loss_drop":
        raise NotApplicable(
            "the clients send gradients, and how long a step they would take is not known: there "
            "is no loss_drop; take attack.statistic=cosine"
        )
    return {name: -tensor for name, tensor in update.items()}


def _flat(named: Named, names: Sequence[str]) -> Tensor:
    """Returns these tensors as one vector."""
    return torch.cat([named[name].reshape(-1) for name in names])


def trained(model: nn.Module) -> list[str]:
    """Returns the names of the parameters that are trained."""
    return [name for name, p in model.named_parameters() if p.requires_grad]


def touched(view: Transcript, clients: Sequence[int], scale: Scale) -> Table:
    """Returns the share of each provider's words whose row each client moved, (providers, clients).

    A word counts by log(K / k) if k of the K clients moved its row in any round: what everybody
    writes tells nothing. One that nobody moved speaks against all, and counts most.
    """
    (name,) = table_of_words(scale.model)
    own = np.zeros((len(clients), len(scale.model.get_parameter(name))), np.bool_)
    for seen in view.rounds:
        for upload in _readable(seen):
            own[clients.index(upload.client)] |= moved(upload.tensors, name)
    by = own.sum(axis=0)
    weights = np.where(by == 0, np.log(len(clients)) + 1, np.log(len(clients) / np.maximum(by, 1)))
    rows = []
    for examples in scale.pages.values():
        batch = examples.batch(np.arange(len(examples)))
        tokens = tokens_of({name: column.numpy() for name, column in batch.items()})
        words = np.unique(np.concatenate(tokens))
        rows.append(own[:, words] @ weights[words] / max(weights[words].sum(), TINY))
    return np.array(rows)


def unexplained(drops: Table, before: NDArray[np.float64]) -> Table:
    """Returns the drops less what follows from where they began, by a line fitted to each column.

    Where the loss was high, training brings it down further, member or not.
    """
    steepness = np.stack([np.ones_like(before), before], axis=1)
    fitted = np.linalg.lstsq(steepness, drops, rcond=None)[0]
    explained: Table = steepness @ fitted
    return drops - explained if len(before) > FEWEST_PROVIDERS else drops


def together(tables: Sequence[Table]) -> Table:
    """Returns the mean over rounds of standardised tables; NaN where a client was never seen.

    A column is brought to median 0 and deviation 1 over the providers, most of whom no single
    client holds: so a client that has learnt more weighs no more. NaN where a client was absent.
    """
    mean: Table = np.nanmean(np.stack([standardised(table) for table in tables]), axis=0)
    return mean


def standardised(table: Table) -> Table:
    """Returns the table with every column at median 0 and (robust) standard deviation 1."""
    centred = table - np.median(table, axis=0)
    deviation = TO_DEVIATION * np.median(np.abs(centred), axis=0)
    return centred / np.where(deviation == 0, 1.0, deviation)


def against_others(levels: Table) -> Table:
    """Returns by how many standard deviations a client serves a provider better than the others do.

    Args:
        levels: (providers, clients), each column standardised.
    """
    others = (levels.sum(axis=1, keepdims=True) - levels) / (levels.shape[1] - 1)
    return standardised(levels - others)


def highest_of_nobody(clients: int, false_positives: float) -> float:
    """Returns what the highest of so many standard Gaussians exceeds with this probability.

    The null of a provider that no client holds. The others' mean makes them dependent, by
    -1 / (clients - 1); the bound for independent ones is then still close.
    """
    return float(norm.isf(-np.expm1(np.log1p(-false_positives) / clients)))


def upper_group(scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Returns who is in the upper of two groups, (n,): 2-means in one dimension, solved exactly.

    For scores without a null distribution. If all are alike, nobody is.
    """
    ascending = np.sort(scores)
    below = np.arange(1, len(ascending))
    sums = np.cumsum(ascending - ascending.mean())[:-1]
    # Of the variance, what lies between the two groups; their sums are opposite.
    between = sums**2 * (1 / below + 1 / (len(ascending) - below))
    if ascending[0] == ascending[-1]:
        return np.zeros(len(scores), np.bool_)
    upper: NDArray[np.bool_] = scores > ascending[int(np.argmax(between))]
    return upper
