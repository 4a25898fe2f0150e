"""One unit less changes nothing fixed or public of any other: neighbours by the data path."""

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from thorough import examples

from fedpriv.config import catalogue, experiment
from fedpriv.data.document import DocumentSet
from fedpriv.data.examples import PROVIDER, provider_number
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import ByClient, HoldOut
from fedpriv.federation.audit import neighbours as audited
from fedpriv.federation.audit.mechanism import _bare, audit_mechanism
from fedpriv.federation.dataset import DocumentData
from fedpriv.models.vt5 import vt5
from fedpriv.privacy.banded import turn
from fedpriv.runtime.tensors import digest

COMPANIES, SEED = 7, 5
OF_STEPS = ("dp_fedavg", "fl_provider_dp", "centralised_provider_dp")
"""Strategies whose clients take eight local steps, of which two are as good here."""

PRIVATE = sorted(
    path.stem
    for folder in catalogue.folders()
    for path in (folder / "strategy").glob("*.yaml")
    if "mechanism" in (yaml.safe_load(path.read_text("utf-8")).get("strategy") or {})
)

pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def assembled(strategy, *overrides):
    clients = [] if strategy.startswith("centralised") else ["data.partition.clients=2"]
    asked = [
        *("data=slips", f"data.source.providers={COMPANIES}", "data.test.fraction=0"),
        *("data.source.documents_per_provider=2", "data.test.unseen=0", "privacy.providers=2"),
        *("privacy.examples=20", f"strategy={strategy}", *clients, f"seed={SEED}", *overrides),
        *(["strategy.mechanism.bands=3"] if strategy == "provider_bandmf" else []),
        *(["client.steps=2"] if strategy in OF_STEPS else []),
    ]
    config = experiment.load("quickstart", asked)
    return experiment.build(config, "quickstart", asked).assemble(config)


def fixed_of(bound, seed=SEED, bands=3):
    """Of each provider, what may not depend on the others: client, turn, and its rows."""
    found = {}
    names = {provider_number(page.provider): page.provider for page in bound.documents}
    for client, rows in enumerate(bound.rows):
        mine = bound.train.take(rows)
        for number in np.unique(mine.column(PROVIDER)).tolist():
            own = mine.take(np.flatnonzero(mine.column(PROVIDER) == number))
            # These count the documents and questions of others, too, and are pointers only.
            counters = ("document", "question")
            columns = {name: own.column(name) for name in own.columns if name not in counters}
            pages = [
                hashlib.sha256(own.shared[name][0][at].tobytes()).hexdigest()
                for name, (_, pointer) in sorted(own.shared.items())
                for at in dict.fromkeys(own.column(pointer).tolist())
            ]
            texts = {n: c for n, c in columns.items() if c.dtype.kind != "U"}
            said = [c.tolist() for c in columns.values() if c.dtype.kind == "U"]
            told = names[number]
            found[told] = (client, turn(seed, number, bands), digest(texts), said, pages)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Each strategy's federation, assembled once."""
    known = {}

    def of(strategy):
        if strategy not in known:
            known[strategy] = assembled(strategy)
        return known[strategy]

    return of


@pytest.mark.parametrize("strategy", PRIVATE)
def test_whoever_is_left_out_no_other_provider_is_moved(strategy, made):
    federation = made(strategy)
    whole = fixed_of(federation.bound)
    assert len(whole) == COMPANIES
    for gone in whole:
        data = dataclasses.replace(federation.data, leave_out=(gone,))
        left = fixed_of(data.bind(federation.model, SEED))
        assert left == {name: fixed for name, fixed in whole.items() if name != gone}


@pytest.mark.parametrize("strategy", PRIVATE)
def test_sums_move_by_what_is_counted_for_the_one_who_is_left_out(strategy, made):
    federation = made(strategy)
    bare = _bare(federation, bands=True)
    found = list(audited.neighbours(federation, bare, 3))
    if bare.own_noise:  # no sum of contributions
        assert not found
        return
    assert len(found) == 3
    assert all(moved <= 1 + 1e-5 for moved in found)
    assert max(found) > 0.1


@pytest.mark.parametrize(
    ("strategy", "computed"),
    [
        ("fl_provider_dp_one_step", "training.precision=bf16"),
        ("fl_provider_dp_one_step", "training.microbatch=1"),
        ("feam_dp", "training.precision=bf16"),
        ("provider_bandmf", "training.precision=bf16"),
    ],
)
def test_so_they_do_in_lower_precision_and_in_parts(strategy, computed):
    """Others' gradients are the same, however coarse, and each clipped norm is at most C."""
    federation = assembled(strategy, computed)
    found = list(audited.neighbours(federation, _bare(federation, bands=True), 2))
    assert found
    assert all(moved <= 1 + 1e-3 for moved in found)


@pytest.mark.parametrize("strategy", ["fl_provider_dp", "provider_bandmf", "feam_dp"])
def test_several_providers_left_out_move_sums_by_what_is_counted_for_each(strategy, made):
    federation = made(strategy)
    names = sorted(fixed_of(federation.bound))
    bare, clients = _bare(federation, bands=True), range(federation.clients)
    half = federation.client.steepest(bare.mechanism.clip_norm, "loop")
    whole = audited._sums(federation, bare, half, federation.bound, [*clients])
    for gone in itertools.pairwise(names[:4]):
        less = dataclasses.replace(federation.data, leave_out=gone).bind(federation.model, SEED)
        rest = audited._sums(federation, bare, half, less, [*clients])
        numbers = [provider_number(name) for name in gone]
        column = federation.bound.train.columns[PROVIDER]
        counted = 2 if bare.mechanism.unit == "provider" else np.isin(column, numbers).sum()
        assert np.linalg.norm(whole - rest) <= counted * (1 + 1e-5)


@pytest.mark.parametrize("strategy", ["provider_bandmf", "fl_provider_dp"])
def test_an_audit_sees_what_is_keyed_by_a_rank(strategy, monkeypatch):
    """As providers were numbered once: in the order of all names, so that others move up."""
    real = DocumentData._encode

    def by_rank(self, model, documents, deal):
        rows, encoded = real(self, model, documents, deal)
        ranks = np.unique(encoded.columns[PROVIDER], return_inverse=True)[1]
        return rows, encoded.with_column(PROVIDER, ranks)

    monkeypatch.setattr(DocumentData, "_encode", by_rank)
    federation = assembled(strategy, "training.batch_size=1")
    audit = audit_mechanism(federation, 3, axes=1 << 12, left_out=2)
    assert audit.contradicted
    assert audit.moved > 1.1
    assert "ALARM" in audit.lines()[0]
    assert "without one supplier" in audit.lines()[-1]
    assert not audit_mechanism(federation, 3, axes=1 << 12).contradicted  # its canaries cannot


@dataclasses.dataclass(frozen=True)
class Given:
    """Slips whose clients are known, less one."""

    seed: int
    without: int | None = None

    def load(self):
        made = Slips(providers=5, documents_per_provider=2, seed=self.seed).load()
        names = sorted({page.provider for page in made.documents})
        clients = {name: f"c{place % 2}" for place, name in enumerate(names)}
        pages = [
            dataclasses.replace(page, client=clients[page.provider], split="train")
            for i, page in enumerate(made.documents)
            if i != self.without
        ]
        return DocumentSet(made.name, tuple(pages), made.labels)


@examples(10, 20)
@given(st.integers(0, 2**31), st.integers(0, 9), st.booleans())
def test_one_document_more_changes_nothing_of_the_others(seed, gone, asks):
    """Where test split and clients are the documents' own, as they are between companies."""

    def bound(**changes):
        data = DocumentData(
            Given(seed, **changes),
            ByClient(clients=2),
            HoldOut(by="split"),
            random_questions=asks,
            cache="off",
        )
        return data.bind(lambda labels: vt5(size="tiny"), SEED)

    whole, less = fixed_of(bound()), fixed_of(bound(without=gone))
    documents = Given(seed).load().documents
    touched = documents[gone].provider
    assert {k: v for k, v in whole.items() if k != touched} == {
        k: v for k, v in less.items() if k != touched
    }
    assert whole[touched][:2] == less[touched][:2]


@given(st.sets(st.text(min_size=1), min_size=2, max_size=50))
def test_a_providers_number_is_a_function_of_its_name_that_a_float_holds(names):
    numbers = {provider_number(name) for name in names}
    assert len(numbers) == len(names)
    assert all(int(float(n)) == n and 0 <= n < 2**52 for n in numbers)
