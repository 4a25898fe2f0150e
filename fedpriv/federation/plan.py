"""A private run that is only planned: what is known of it, what is wrong, what follows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from fedpriv.privacy import views
from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import (
    MOST_GROUPED,
    ClientThenRecord,
    count_problem,
    delta_problem,
    noise_problem,
    rate_problem,
)
from fedpriv.privacy.mechanism import MOST_ROUNDS
from fedpriv.privacy.noise import shares


class BudgetMistakes(ValueError):
    """Everything that is wrong with a plan, at once."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        plural = "mistake" if len(mistakes) == 1 else "mistakes"
        super().__init__(f"budget: {len(mistakes)} {plural}\n  " + "\n  ".join(mistakes))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A private run, as far as it is known.

    Of noise, rounds and record rate, one may be left out if `epsilon` is given: `budget` finds the
    smallest noise, the most rounds or the largest rate that this ε allows.

    Args:
        delta: in (0, 1).
        client_rate: probability that a client is drawn for a round, in [0, 1].
        record_rate: probability that a record of a drawn client enters, in [0, 1].
        rounds: releases of a noisy sum, >= 0.
        noise_multiplier: standard deviation of the noise on the sum ÷ clip norm.
        epsilon: at most this in `view`, and at least .01 less where noise or rate are found.
        view: the view that `epsilon` is for, one of `VIEWS`.
        cohort: clients in a round, where every round has the same number of them.
        accountant: finds what was left out and gives ε by round.
        group_size: records of the protected unit.
        examples: of all clients together. With `batch_size`, those expected in a round, they give
            the record rate; with `epochs` also the rounds.
        batch_size: see `examples`.
        epochs: times that each example is expected to be drawn in a run.
        clients: of the federation. These or `cohort` give `server_plain` and colluders.
        sampling: of the clients: "poisson", unless `cohort` is given; or "fixed".
        threshold: share of the cohort whose noise must suffice; 1 unless `dropouts` are given.
        dropouts: of a cohort that may stay away, as a share below 1 or a number; gives the
            threshold.
        colluders: clients that tell the masked server their noise.
        masked: whether secure aggregation is on, which has costs and colluders of its own.
        discrete: whether its noise is of whole numbers (`fedpriv.privacy.discrete`): the same ε,
            half the traffic, and a little more noise. It needs `masked`, `clients`, `parameters`,
            and `units_per_client` or `examples`.
        steps: noisy steps of a client in a round, where each protects itself (FedAvg-DP).
        bands: rounds that a contribution reaches (`fedpriv.privacy.banded`); at its turn, in one
            round of so many, a record enters with `bands` times the record rate, at most 1.
        units_per_client: that a client holds: examples, providers, or 1 where it is the unit.
        parameters: that are trained and sent.
        clip_norm: of one unit's contribution.
    """

    delta: float
    client_rate: float | None = None
    record_rate: float | None = None
    rounds: int | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    view: str | None = None
    cohort: int | None = None
    accountant: str = "pld"
    group_size: int = 1
    examples: int | None = None
    batch_size: float | None = None
    epochs: float | None = None
    clients: int | None = None
    sampling: str | None = None
    threshold: float | None = None
    dropouts: float | None = None
    colluders: int | None = None
    masked: bool = False
    discrete: bool = False
    steps: int | None = None
    bands: int = 1
    units_per_client: float | None = None
    parameters: int | None = None
    clip_norm: float = 1.0

    def mistakes(self) -> list[str]:
        """Returns everything that is wrong with the plan."""
        rates = ("client_rate", "record_rate", "threshold")
        least = {
            "rounds": 0,
            "cohort": 1,
            "clients": 1,
            "colluders": 0,
            "steps": 1,
            "bands": 1,
            "parameters": 1,
            "examples": 1,
        }
        most = {"rounds": MOST_ROUNDS, "steps": MOST_ROUNDS}
        positive = ("epsilon", "batch_size", "epochs", "units_per_client", "clip_norm")
        found = [
            delta_problem("delta", self.delta),
            count_problem("group_size", self.group_size, 1, MOST_GROUPED),
            *(rate_problem(name, value) for name, value in self._given(*rates)),
            *(
                count_problem(name, value, least[name], most.get(name, math.inf))
                for name, value in self._given(*least)
            ),
        ]
        for name, value in self._given(*positive):
            if noise_problem(name, value) or value == 0:
                found.append(f"{name}={value!r}: expected a finite number > 0")
        if self.bands > 1:
            if self.client_rate != 1:
                found.append("bands: all clients take part in every round; give client_rate=1")
            if self.group_size > 1:
                found.append("bands: contributions of a group may meet; give group_size=1")
            if self.steps is not None:
                found.append("bands: not with steps, the noise of a client by itself")
        if self.discrete:
            missing = [
                name for name in ("masked", "clients", "parameters") if not getattr(self, name)
            ]
            if self.units_per_client is None and self.examples is None:
                missing.append("units_per_client or examples")
            if missing:
                found.append(f"discrete: give {', '.join(missing)} too; its ring follows from them")
            if self.steps is not None:
                found.append("discrete: not with steps, the noise of a client by itself")
        if not any(found):  # these calculate with the numbers
            found += self._sampling_problems()
        found += self._target_problems()
        return [problem for problem in found if problem]

    def _given(self, *names: str) -> Iterator[tuple[str, Any]]:
        for name in names:
            if getattr(self, name) is not None:
                yield name, getattr(self, name)

    def _sampling_problems(self) -> Iterator[str]:
        """Yields what is wrong with how clients are drawn, or with how records are."""
        cohort, clients, rate = self.cohort, self.clients, self.client_rate
        if self.sampling not in (None, "poisson", "fixed"):
            yield f"sampling={self.sampling!r}: expected poisson or fixed"
        if rate is None and not (cohort and clients):
            yield "client_rate: must be given; 1 where all clients take part in every round"
        if cohort is not None and self.sampling == "poisson" and rate != 1:
            yield f"cohort={cohort}: under poisson sampling its size varies; give clients instead"
        if cohort and clients and cohort > clients:
            yield f"cohort={cohort}: expected at most {clients}, the number of clients"
        if cohort and clients and rate and abs(rate * clients - cohort) > 1e-6 * cohort:
            yield f"cohort={cohort}: client_rate={rate:g} of {clients} clients is another number"
        yield from self._dropout_problems()
        if self.batch_size is not None and self.examples is None:
            yield "examples: must be given with batch_size, which is a share of them"
        if self.epochs is not None and (self.examples is None or self.batch_size is None):
            yield "epochs: needs examples and batch_size, to be counted in rounds"
        if self.batch_size is not None and self.record_rate is not None:
            yield "record_rate: examples and batch_size give it; leave one of the two out"
        if self.epochs is not None and self.rounds is not None:
            yield "rounds: epochs give them; leave one of the two out"

    def _dropout_problems(self) -> Iterator[str]:
        away = self.dropouts
        if away is None:
            return
        known = self.sampling == "fixed" and self.clients is not None
        if noise_problem("dropouts", away) or (away >= 1 and away % 1 != 0):
            yield f"dropouts={away!r}: expected a share below 1, or a whole number of clients"
        elif self.threshold is not None:
            yield "threshold: dropouts give it; leave one of the two out"
        elif away >= 1 and self.cohort is None and not known:
            yield f"dropouts={away:g}: needs cohort; or give a share of it, such as 0.2"

    def _target_problems(self) -> Iterator[str | None]:
        """Yields what is wrong with what is to be found, and with whom it shall hold against."""
        known = (*accountants.ACCOUNTANTS, accountants.OPACUS)
        if self.accountant not in known:
            yield f"accountant={self.accountant!r}: one of {', '.join(known)}"
        if self.view is not None and self.view not in views.VIEWS:
            yield f"view={self.view!r}: expected one of {', '.join(views.VIEWS)}"
        if self.noise_multiplier is not None:
            yield noise_problem("noise_multiplier", self.noise_multiplier)
        missing = []
        if self.noise_multiplier is None:
            missing.append("noise_multiplier")
        if self.rounds is None and self.epochs is None:
            missing.append("rounds")
        if self.record_rate is None and self.batch_size is None:
            missing.append("record_rate")
        if self.epsilon is None and missing == ["noise_multiplier"]:
            yield "noise_multiplier or epsilon: one of the two must be given"
        elif self.epsilon is None:
            yield from (f"{name}: must be given" for name in missing)
        elif len(missing) > 1:  # ε stands in for the noise
            yield from (f"{name}: must be given" for name in missing if name != "noise_multiplier")
        elif not missing:
            yield (
                "noise_multiplier or epsilon: only one of the two; or leave out rounds or "
                "record_rate, to find how many or how large it may be"
            )
        if self.epsilon is not None and self.view is None:
            yield f"view: epsilon is for one of {', '.join(views.VIEWS)}; say which"
        unknown = self.clients is None and self.cohort is None
        if self.epsilon is not None and unknown and self.steps is None:
            if self.view == "server_plain":
                yield "clients: view=server_plain needs how many clients share the noise"
            if self.view == "server_masked" and self.colluders:
                yield "clients: must be given with colluders, who are some of them"
        colluders, everybody = self.colluders, self.clients or self.cohort
        if isinstance(colluders, int) and isinstance(everybody, int) and 0 < everybody <= colluders:
            yield (
                f"colluders={colluders}: expected {everybody - 1} at most, all but the client of "
                "the protected unit"
            )

    def completed(self) -> PlannedRun:
        """Returns the plan with everything in it that follows from the rest.

        What is to be found is 0.

        Raises:
            BudgetMistakes: (a ValueError) what follows is out of its range; or from a plan with
                mistakes.
        """
        known = asdict(self)
        rate = self.client_rate
        if rate is None:
            if not (self.cohort and self.clients):
                raise BudgetMistakes(self.mistakes())
            rate = self.cohort / self.clients
        known["client_rate"] = rate
        known["sampling"] = self.sampling or ("poisson" if self.cohort is None else "fixed")
        cohort = self.cohort
        if cohort is None and self.clients is not None and known["sampling"] == "fixed":
            try:
                views.cohorts_of("fixed", rate, self.clients)
            except ValueError as error:
                raise BudgetMistakes([str(error)]) from error
            cohort = round(rate * self.clients)
        if self.batch_size is not None and self.examples is not None:
            drawn_from = self.examples * rate
            known["record_rate"] = self.batch_size / drawn_from if rate else math.inf
            if known["record_rate"] > 1:
                raise BudgetMistakes(
                    [f"batch_size={self.batch_size:g}: a round draws from {drawn_from:g}"]
                )
            if self.epochs is not None:
                batches = self.epochs * self.examples / self.batch_size
                known["rounds"] = math.ceil(batches - 1e-9)
        if self.threshold is None:
            away = self.dropouts or 0
            # A number of clients is refused where cohorts have no fixed size.
            threshold = 1 - (away / cohort if cohort and away >= 1 else away)
            if threshold <= 0:
                raise BudgetMistakes([f"dropouts={away:g}: nobody is left of a cohort of {cohort}"])
            known["threshold"] = threshold
        if self.units_per_client is None and self.examples is not None and self.clients is not None:
            known["units_per_client"] = self.examples / self.clients
        known["colluders"] = self.colluders or 0
        for name in ("noise_multiplier", "rounds", "record_rate"):
            if known[name] is None:
                known[name] = 0
        return PlannedRun(**known)


@dataclass(frozen=True, kw_only=True)
class PlannedRun(Plan):
    """A plan of which all is known that ε depends on."""

    client_rate: float
    record_rate: float
    rounds: int
    noise_multiplier: float
    sampling: views.Sampling
    threshold: float
    colluders: int

    @property
    def releases(self) -> int:
        """Noisy sums that one record meets: rounds, its turns, or steps of its client by itself."""
        return math.ceil(self.rounds / self.bands) * (self.steps or 1)

    @property
    def turn_rate(self) -> float:
        """Probability that a record enters at its turn, given that its client is drawn."""
        return min(1.0, self.bands * self.record_rate)

    @property
    def expected_cohort(self) -> float | None:
        """Clients in a round, on average; None where their number is not known."""
        if self.cohort is not None:
            return float(self.cohort)
        return self.client_rate * self.clients if self.clients is not None else None

    def cohorts(self) -> list[views.Cohort]:
        """Returns the sizes that a cohort may have; none where they are not known."""
        if self.cohort is not None:
            return [(1.0, self.client_rate, shares(self.threshold, self.cohort))]
        if self.clients is None:
            return []
        return views.cohorts_of(self.sampling, self.client_rate, self.clients, self.threshold)

    def event(self) -> ClientThenRecord:
        """Returns one round under the whole noise."""
        return ClientThenRecord(
            self.client_rate, self.turn_rate, self.noise_multiplier, self.group_size
        )

    def views(self) -> dict[str, views.View]:
        """Returns one release as each of `VIEWS` sees it."""
        if self.steps is not None:
            # Every client's message carries all of its noise: there is one view, and no client
            # stage.
            own = ClientThenRecord(1.0, self.record_rate, self.noise_multiplier, self.group_size)
            return dict.fromkeys(views.VIEWS, views.View(own, True, views.OWN_NOISE))
        return views.view_events(
            self.client_rate,
            self.turn_rate,
            self.noise_multiplier,
            self.cohort,
            self.group_size,
            clients=None if self.cohort is not None else self.clients,
            sampling=self.sampling,
            threshold=self.threshold,
            colluders=self.colluders,
        )
