"""The ledger is never below the truth: all that can happen to a few clients in three rounds.

`tests/exhaustive.py` lists it and knows the exact privacy of each; here the ledger books it. In a
*plan that is fixed beforehand*, who is away and when the run is killed does not depend on who is
drawn. Then the run's own ε, which may differ from path to path, must be δ-safe on average over all
paths. An *adversary who sees the cohorts* chooses both by them. Then the largest ε that a run may
come to must hold for whatever is chosen: an ε that is held, such as `epsilon=8`, is one of these.
"""

import functools
import itertools
import json
import math
import random
from collections import Counter
from dataclasses import replace

import exhaustive
import numpy as np
import pytest
from exhaustive import REFUSED, UNFINISHED, Losses, Plan, made, members, paths, scenarios, size
from host_vectors import to_vectors
from toy import OutOfLuck
from toy_private import Watched, are_independent, federation, provider_data

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.messages import UPDATE, instruction_of
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy import ledger
from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.ledger import Attempt, Ledger
from fedpriv.privacy.mechanism import client_gaussian, example_gaussian
from fedpriv.privacy.statement import doubts
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.per_example import PerExample

NOISE, DELTA = 1.0, 1e-4
FLOAT = 1 + 1e-9
"""The exact δ has ten digits."""


@functools.cache
def strategy(plan, record_rate=1.0):
    drawn = {
        "client_rate": plan.rate if plan.drawn is None else plan.drawn / plan.clients,
        "client_sampling": "poisson" if plan.drawn is None else "fixed",
    }
    noise = {"clip_norm": 1.0, "noise_multiplier": NOISE, "delta": DELTA}
    if plan.kind == "own":
        return FedAvgDP(example_gaussian(examples=10, **noise, **drawn))
    if record_rate < 1:
        mechanism = example_gaussian(examples=10, record_rate=record_rate, **noise, **drawn)
        return FeAmDP(mechanism, threshold=plan.threshold)
    variant = "paper" if plan.kind == "short" else "sound"
    mechanism = client_gaussian(**noise, **drawn)
    return FLProviderDP(mechanism, threshold=plan.threshold, variant=variant)


def attempt(plan, t, round=1):
    finished = t.answered != UNFINISHED
    survivors = t.answered if finished else t.cohort
    return Attempt(
        round,
        t.number,
        plan.clients,
        members(t.cohort),
        members(survivors),
        released=t.summed != REFUSED,
        sent=t.version,
        finished=finished,
        perhaps=members(t.known & ~survivors),
    )


def booked(plan, rounds, record_rate=1.0):
    algorithm = strategy(plan, record_rate)
    releases = [
        algorithm.booked(attempt(plan, t, number))
        for number, tries in enumerate(rounds, 1)
        for t in tries
    ]
    return Ledger(algorithm.mechanism, plan.masked, releases=releases)


@functools.cache
def history(plan, tries, view, record_rate=1.0):
    return frozenset(booked(plan, [tries], record_rate).history(view))


@functools.cache
def _epsilon(events):
    return accountants.epsilon(list(events), DELTA)


@functools.cache
def epsilon(histories):
    total = Counter()
    for events in histories:
        total.update(dict(events))
    return _epsilon(frozenset(total.items()))


def exact_delta(outcomes, shift=0.0):
    """δ of what was seen, at the ε that was booked for it."""
    seen = float(sum(precision for precision, _ in outcomes)) / NOISE**2
    return exhaustive.gaussian_delta(seen, epsilon(tuple(e for _, e in outcomes)) - shift)


@functools.cache
def seen_and_booked(plan, view, tries):
    same = exhaustive.renamed(tries, plan.clients)  # which client does it changes no booking
    return round(sum(exhaustive.shown(plan, tries, view)), 9), history(plan, same, view)


def views(plan):
    return ("global", "server_masked" if plan.masked else "server_plain")


def fixed_beforehand(plan, makings):
    """Every scenario's lottery in every view, the scenarios and their paths."""
    lotteries, cases, walked = {view: {} for view in views(plan)}, 0, 0
    for count in range(1, makings + 1):
        for scenario in scenarios(plan.clients, count):
            walk = list(paths(plan, scenario))
            cases, walked = cases + 1, walked + len(walk)
            for view, known in lotteries.items():
                outcomes = [(p, seen_and_booked(plan, view, t)) for p, t in walk]
                known.setdefault(exhaustive.lottery(outcomes), scenario)
    return lotteries, cases, walked


def plans(least, most, rates):
    """Plans that differ: with few clients two thresholds may be one."""
    found = {}
    for clients in range(least, most + 1):
        fixed = [{"drawn": m} for m in range(1, clients + 1)]
        for drawn in fixed + [{"rate": q} for q in rates]:
            for threshold, masked in itertools.product((1.0, 0.5, 0.67), (False, True)):
                plan = Plan(clients, threshold=threshold, masked=masked, **drawn)
                found.setdefault(plan.means(), plan)
    return list(found.values())


def worst(plan, makings, rounds):
    """The largest δ / DELTA by view and number of rounds; and the cases and paths behind it."""
    lotteries, cases, walked = fixed_beforehand(plan, makings)
    found = {
        (view, t): exhaustive.largest(known, t, exact_delta) / DELTA
        for view, known in lotteries.items()
        for t in range(1, rounds + 1)
    }
    return found, lotteries, cases, walked


def margin(known, rounds):
    """By how much every ε could be smaller before some scenario's δ were exceeded."""
    low, high = 1e-9, 1e-2
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        shifted = functools.partial(exact_delta, shift=middle)
        enough = exhaustive.largest(known, rounds, shifted) <= DELTA
        low, high = (middle, high) if enough else (low, middle)
    return low


SMALL = plans(2, 2, [0.5]) + [Plan(3, 2, threshold=t) for t in (1.0, 0.5)]


def test_nothing_fixed_beforehand_is_worse_than_booked():
    for plan in SMALL:
        found, *_ = worst(plan, makings=2, rounds=2)
        assert max(found.values()) <= FLOAT, (plan, found)


@pytest.mark.slow
def test_nothing_fixed_beforehand_is_worse_than_booked_with_four_clients_in_three_rounds():
    """Prints how many cases there were, and how near the ledger came to the truth.

    Four clients that are drawn by coins make two rounds: there are 69,248 paths of each.
    """
    cases = walked = 0
    margins = []
    few = plans(1, 2, [0.25, 0.5]) + plans(3, 3, [0.5]) + plans(4, 4, [])
    cases_of = [*((plan, 2, 3) for plan in few), *((plan, 3, 2) for plan in THRICE)]
    for plan, makings, rounds in [*cases_of, (Plan(4, rate=0.5), 2, 2)]:
        found, lotteries, scenarios, some = worst(plan, makings, rounds)
        assert max(found.values()) <= FLOAT, (plan, found)
        cases, walked = cases + scenarios, walked + some
        margins += [margin(known, 2) for known in lotteries.values()]
    print(f"{cases} scenarios of a round, {walked} paths; smallest margin of ε {min(margins):.2g}")
    assert min(margins) < 1e-3  # the ledger is not safe by being far above the truth


THRICE = [Plan(2, 1), Plan(2, rate=0.5), Plan(2, 2, masked=True), Plan(2, 2, threshold=0.5)]
"""For rounds that are made three times."""


# Against who sees the cohorts


def largest_held(plan, view, makings, rounds):
    """The largest δ / DELTA of any ε that some choice of absences and kills never exceeds."""
    start = exhaustive.game(plan, makings, functools.partial(seen_and_booked, plan, view))
    bookings = {option[1] for node in _nodes(start) for option in node if type(option) is tuple}
    asked = {epsilon(some) for some in itertools.combinations_with_replacement(bookings, rounds)}

    def value(outcomes, held):
        if epsilon(tuple(e for _, e in outcomes)) > held:
            return -math.inf
        seen = float(sum(precision for precision, _ in outcomes)) / NOISE**2
        return exhaustive.gaussian_delta(seen, held)

    best = [
        exhaustive.best_play(start, rounds, functools.partial(value, held=held)) for held in asked
    ]
    return max(best) / DELTA


def _nodes(draw):
    for *_, node in draw:
        yield node
        for option in node:
            if isinstance(option, frozenset):
                yield from _nodes(option)


def test_no_absence_and_no_kill_that_depends_on_the_cohort_is_worse_than_booked():
    for plan in SMALL:
        for view in views(plan):
            found = largest_held(plan, view, makings=2, rounds=1)
            assert found <= FLOAT, (plan, view, found)


@pytest.mark.slow
def test_no_absence_and_no_kill_that_depends_on_the_cohorts_of_three_rounds_is_worse():
    for plan in plans(1, 2, [0.25, 0.5]) + plans(3, 3, [0.5]) + plans(4, 4, []):
        for view in views(plan):
            for rounds in (1, 3):
                found = largest_held(plan, view, makings=2, rounds=rounds)
                assert found <= FLOAT, (plan, view, rounds, found)


# Other kinds of noise


def test_an_epsilon_that_is_called_a_guarantee_holds_where_noise_may_be_missing():
    """The variant "paper": paths on which the ledger claims nothing are not held against it."""

    def claimed(plan, tries, view):
        told = doubts(booked(plan, [tries]), view)
        return not [doubt for doubt in told if not doubt.startswith("not covered")]

    for plan in [Plan(3, 2, kind="short"), Plan(2, rate=0.5, kind="short")]:
        lotteries = {view: set() for view in ("global", "server_plain")}
        for scenario in scenarios(plan.clients, 1) + scenarios(plan.clients, 2):
            for view, known in lotteries.items():
                outcomes = [
                    (p * claimed(plan, t, view), seen_and_booked(plan, view, t))
                    for p, t in paths(plan, scenario)
                ]
                known.add(exhaustive.lottery(outcomes))
        for known in lotteries.values():
            assert 0.5 * DELTA < exhaustive.largest(known, 2, exact_delta) <= DELTA * FLOAT


def test_where_noise_is_each_clients_own_every_message_is_counted():
    """Then no path is worse than booked, whoever chose it: the busiest client has sent as much."""
    for plan in [Plan(2, 1, kind="own"), Plan(2, rate=0.5, kind="own")]:
        for scenario in scenarios(plan.clients, 2) + scenarios(plan.clients, 3)[::50]:
            for _, tries in paths(plan, scenario):
                sent = sum(t.heard & 1 for t in tries)
                for others in (0, 1):  # rounds in which only client 0 has taken part
                    busy = exhaustive.Try(0, "a", 1, 1, 1, 1, 1)
                    rounds = [tries, *[(busy,)] * others]
                    event = ClientThenRecord(1.0, 1.0, NOISE)
                    for view in ("global", "server_plain"):
                        said = dict(booked(plan, rounds).history(view)).get(event, 0)
                        assert said >= sent + others, (plan, scenario, tries)


@pytest.mark.parametrize("plan", [Plan(2, 1), Plan(2, 2), Plan(2, rate=0.5), Plan(1, 1)], ids=str)
def test_records_that_are_sampled_are_not_worse_than_booked(plan):
    """The exact δ from losses that are rounded down: what exceeds it, exceeds the truth."""
    rate = 0.5
    losses = Losses(rate)

    @functools.cache
    def both(seen, bookings):
        return losses.deltas(seen, NOISE, epsilon(bookings))

    most = 0.0
    for view in ("global", "server_plain"):
        every = set()
        for scenario in scenarios(plan.clients, 1) + scenarios(plan.clients, 2):
            every.add(
                exhaustive.lottery(
                    (p, (exhaustive.shown(plan, t, view), history(plan, t, view, rate)))
                    for p, t in paths(plan, scenario)
                )
            )
        for rounds in itertools.combinations_with_replacement(every, 2):
            total = np.zeros(2)
            for one, other in itertools.product(*rounds):
                seen = tuple(sorted(one[0][0] + other[0][0]))
                bookings = tuple(sorted((one[0][1], other[0][1]), key=repr))
                total += one[1] * other[1] * both(seen, bookings)
            assert total.max() <= DELTA * FLOAT, (plan, view, rounds)
            most = max(most, total.max())
    assert most > 0.97 * DELTA  # neither the bound nor the truth is loose


# The checker finds what is wrong


def refused_is_not_booked(made, view):
    """As it was: what was refused is booked under Poisson sampling only."""
    counted = [r for r in made if r.attempt.released or r.poisson or view == "server_plain"]
    return _EVENTS(counted, view, 0) if counted else ()


def once_a_round(made, view):
    """What is made again is taken for the same."""
    return _EVENTS(made[:1], view, 0)


def mean_cohort(made, view):
    """The server sees one share of as many as there are on average."""
    first, *others = _EVENTS(made, view, 0)
    if view == "server_plain":
        rate, clients = made[0].client_rate, made[0].attempt.clients
        shares = max(1, math.ceil(made[0].threshold * rate * clients))
        first = ClientThenRecord(rate, made[0].record_rate, made[0].planned / math.sqrt(shares))
    return [first, *others]


def any_first_sum_is_amplified(made, view):
    """Also one of another cohort than the first, which may have been drawn because of that one."""
    if view == "server_plain":
        return _EVENTS(made, view, 0)
    rates = [made[0].client_rate, *[1.0] * len(made)]
    shown = [r for r in made if r.shown] or made[:1]
    return [
        ClientThenRecord(rate, r.record_rate, r.planned)
        for rate, r in zip(rates, shown, strict=False)
    ]


_EVENTS = ledger._events
WRONG = {
    refused_is_not_booked: Plan(3, 2),
    once_a_round: Plan(2, 1),
    mean_cohort: Plan(2, rate=0.5),
    any_first_sum_is_amplified: Plan(3, 2, threshold=0.5),
}


@pytest.fixture
def wrong(request, monkeypatch):
    """A wrong rule in place of the ledger's, and a plan under which it shows."""
    rule = request.param
    monkeypatch.setattr(ledger, "_events", lambda made, view, colluders: rule(made, view))
    known = history, seen_and_booked
    for function in known:
        function.cache_clear()
    yield WRONG[rule]
    for function in known:
        function.cache_clear()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda rule: rule.__name__, indirect=True)
def test_a_wrong_rule_is_found(wrong):
    found, *_ = worst(wrong, makings=2, rounds=2)
    print({case: round(most, 3) for case, most in found.items()})
    assert max(found.values()) > 1.05


@pytest.mark.parametrize("wrong", [any_first_sum_is_amplified], indirect=True)
def test_who_interrupts_until_a_client_is_drawn_is_found(wrong):
    assert largest_held(wrong, "global", makings=2, rounds=1) > 1.3


# The real loop does what the model of the protocol says


class Stop(KeyboardInterrupt):
    """The run is ended here."""


class Scripted(Watched):
    """A grid without the clients that are away, which may end the run once messages have arrived.

    Args:
        federation: whose clients they are.
        absent: numbers.
        stop_after: so many times that clients were sent to train; 0 for never.
    """

    def __init__(self, federation, absent, stop_after):
        super().__init__(federation, chunk_size=1)
        self.left, self.messages = stop_after, []
        inner = self._app

        def present(message, context):
            client = int(context.node_config["partition-id"])
            if client in absent:
                raise OutOfLuck
            reply = inner(message, context)
            if message.metadata.message_type.startswith("train"):
                (vector,) = to_vectors(reply.content[UPDATE]).values()
                self.messages.append((instruction_of(message).attempt, client, vector.copy()))
            return reply

        self._app = present

    def _deliver(self, messages, timeout):
        yield from super()._deliver(messages, timeout)
        # An empty cohort is asked for nothing but to train.
        if not messages or messages[0].metadata.message_type.startswith("train"):
            self.left -= 1
            if self.left == 0:
                raise Stop


LOUD = 1e3
"""Noise against which nobody's data are seen, so that what differs is the noise."""


def federation_of(plan, version):
    rate = plan.rate if plan.drawn is None else plan.drawn / plan.clients
    drawn = {
        "client_rate": rate,
        "client_sampling": "poisson" if plan.drawn is None else "fixed",
        "noise_multiplier": LOUD,
        "clip_norm": 0.5,
    }
    if plan.kind == "own":
        halves = (
            FedAvgDP(example_gaussian(examples=8, **drawn)),
            DPLocalTraining(per_example=PerExample("loop")),
        )
    elif plan.clients == 3:
        halves = (
            FeAmDP(example_gaussian(examples=8, **drawn), threshold=plan.threshold),
            ExampleGradients(PerExample("loop")),
        )
    else:
        halves = FLProviderDP(client_gaussian(**drawn), threshold=plan.threshold), ProviderUpdates()
    return federation(
        *halves,
        provider_data(plan.clients, 1, 2, seed="abcd".index(version)),
        masking=Masking() if plan.masked else None,
        one_noise=False,
        min_clients=plan.least,
        max_refused=0,
    )


def attempts_made(tries, version, here, plan, cohort):
    """How many attempts, of those in which messages arrive, a making goes through."""
    if size(here) < plan.agreeing(cohort):
        return 0
    same = [t for t in tries if t.version == version]
    others = itertools.takewhile(lambda t: t.answered not in (UNFINISHED, here), same)
    return 1 + len(list(others))


def carried_out(plan, scenario, cohorts, folder, monkeypatch):
    """Runs a scenario; returns the attempts that the model expects, and all messages."""
    tries, messages, sums = (), [], []
    moved = FLProviderDP.moved, FeAmDP.moved

    def end(run, round):
        raise Stop

    for number, (version, absent, how) in enumerate(scenario):
        cohort = cohorts[version]
        here = cohort & ~absent
        times = attempts_made(tries, version, here, plan, cohort)
        stop_after = {"done": 0, "late": times, "early": min(1, times)}[how]
        last = number == len(scenario) - 1
        with monkeypatch.context() as patch:
            for sampling in ("FixedSize", "Poisson"):
                patch.setattr(
                    f"fedpriv.privacy.sampling.{sampling}.draw",
                    lambda *_, k=cohort: list(members(k)),
                )
            made_now = federation_of(plan, version)
            grid = Scripted(made_now, members(absent), stop_after)

            def noted(self, start, total, at=version, of=grid, inner=moved):
                if of.messages:
                    sums.append((of.messages[-1][0], at, frozenset(total.clients)))
                return inner[isinstance(self, FeAmDP)](self, start, total)

            patch.setattr(FLProviderDP, "moved", noted)
            patch.setattr(FeAmDP, "moved", noted)
            if not last:
                patch.setattr("fedpriv.federation.loop._Run._evaluate", end)
            try:
                made_now.run(1, run_dir=folder, resume=number > 0, other_data=True, grid=grid)
                assert last
            except Stop:
                assert not last
        messages += [(attempt, version, client, v) for attempt, client, v in grid.messages]
        tries = made(plan, tries, version, cohort, here, how)
    return tries, messages, sums


def booked_in(folder):
    events = json.loads((folder / "ledger.json").read_text())["events"]
    return [
        Attempt(**{name: _plain(e[name]) for name in Attempt.__dataclass_fields__}) for e in events
    ]


def _plain(value):
    return tuple(value) if isinstance(value, list) else value


def check_real_loop(plan, scenario, cohorts, folder, monkeypatch):
    """One scenario through the federation's own loop, as it is booked and as it is sent."""
    tries, messages, sums = carried_out(plan, scenario, cohorts, folder, monkeypatch)
    found = booked_in(folder)
    assert [replace(a, sent="") for a in found] == [
        replace(attempt(plan, t), sent="") for t in tries
    ], (plan, scenario, cohorts)
    versions = {}
    for a, t in zip(found, tries, strict=True):
        assert versions.setdefault(a.sent, t.version) == t.version
    # One noise, one message, one sum.
    vectors, clients = {}, {}
    for number, version, client, vector in messages:
        first = vectors.setdefault((number, version, client), vector)
        assert np.array_equal(first, vector) or plan.masked
    for number, version, members_ in sums:
        assert clients.setdefault((number, version), members_) == members_, (plan, scenario)
    if not plan.masked:
        heard = {(t.number, t.version, c) for t in tries for c in members(t.heard)}
        assert heard == set(vectors)
        for one, other in itertools.combinations(vectors.values(), 2):
            assert are_independent(one, other)
            assert np.std(one - other) > np.std(one)


REAL = [
    Plan(2, 2, threshold=0.5),
    Plan(2, 1),
    Plan(3, 3, threshold=0.5),
    Plan(3, 2),
    Plan(3, 3, threshold=0.67, least=2),
    Plan(2, 2, masked=True),
    Plan(3, 3, threshold=0.5, masked=True),
    Plan(2, rate=0.5, least=2),
    Plan(3, rate=0.5, threshold=0.67),
    Plan(2, rate=0.5, masked=True),
    Plan(2, 2, kind="own"),
    Plan(3, rate=0.5, kind="own"),
]


def real_cases(count):
    """Some scenarios of each plan, with cohorts, always the same ones."""
    rng = random.Random(7)
    for plan in REAL:
        known = [s for m in (2, 3) for s in scenarios(plan.clients, m)]
        possible = [s for s in known if all(version != "b" for version, *_ in s)]
        for scenario in rng.sample(possible, count):
            drawn = rng.choices([k for _, k in plan.cohorts()], k=3)
            yield plan, scenario, dict(zip("acd", drawn, strict=True))


@pytest.mark.usefixtures("in_own_folder", "budget_untold")
def test_the_loop_books_what_the_model_of_it_says(tmp_path, monkeypatch):
    for number, case in enumerate(real_cases(1)):
        check_real_loop(*case, tmp_path / str(number), monkeypatch)


@pytest.mark.usefixtures("in_own_folder", "budget_untold")
@pytest.mark.slow
def test_the_loop_books_what_the_model_of_it_says_in_many_cases(tmp_path, monkeypatch):
    for number, case in enumerate(real_cases(4)):
        check_real_loop(*case, tmp_path / str(number), monkeypatch)
