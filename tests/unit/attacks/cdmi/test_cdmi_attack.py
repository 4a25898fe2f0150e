"""CDMI on toys whose best answers are known by construction."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pages import page
from torch import nn

from fedpriv.attacks.cdmi import decoding
from fedpriv.attacks.cdmi.attack import CDMI, CDMIAccess
from fedpriv.attacks.cdmi.generator import Training, untrained
from fedpriv.attacks.cdmi.public_data import PublicData
from fedpriv.data.document import DocumentSet
from fedpriv.data.examples import Examples
from fedpriv.models.encoders.backbones import bros
from fedpriv.models.field_model import VISUAL
from fedpriv.threat import kept
from fedpriv.threat.access import (
    Architecture,
    ModelSeries,
    PublicDocuments,
    ScrubbedField,
    ScrubbedFields,
    WhiteBox,
)
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.claims import PUBLIC
from fedpriv.threat.kept import fingerprint

PAD, MASK, VOCABULARY, LENGTH = 0, 1, 12, 10
FIELDS = {0: (3, 4, 5), 1: (2, 3), 2: (5, 6, 7, 8)}
"""The places of each field in its window."""
ENDS = {0: 8, 1: 6, 2: 10}
"""Where the padding of each window begins."""
TRUE = {0: (7, 4, 9), 1: (11, 2), 2: (5, 5, 10, 3)}


def subwords(digest="toy", mask=MASK):
    return SimpleNamespace(digest=digest, mask=mask, pad=PAD, size=VOCABULARY)


class Toy(nn.Module):
    """What the toys have in common: they see no page, and count the rows that they are given."""

    def __init__(self, **tokenizer):
        super().__init__()
        self.reader = SimpleNamespace(subwords=subwords(**tokenizer))
        self.rows = 0

    def seen(self, batch):
        return batch

    def answer(self, documents):
        return [() for _ in documents]

    def encode(self, documents):
        raise AssertionError("a target is given windows, no documents")

    loss = evaluate = encode


class Bigrams(Toy):
    """Scores a token by the one before it; learns from pairs of tokens that follow each other."""

    def __init__(self, table=None, **tokenizer):
        super().__init__(**tokenizer)
        table = torch.zeros(VOCABULARY, VOCABULARY) if table is None else table
        self.table = nn.Parameter(table.clone())

    def token_scores(self, batch, places):
        rows = torch.arange(len(places))
        self.rows += len(rows)
        return self.table[batch["input_ids"][rows, places - 1]]

    def loss(self, batch):
        ids = batch["input_ids"]
        return nn.functional.cross_entropy(self.table[ids[:, :-1]].mT, ids[:, 1:])

    def losses(self, batch):
        raise AssertionError("a masked language model is asked for scores only")

    def encode(self, documents):
        ids = [[int(word.text) for word in document.words] for document in documents]
        tokens = np.array(ids, dtype=np.int64)
        return Examples.of({"input_ids": tokens, "document": np.arange(len(ids))})

    def evaluate(self, examples):
        return {"loss": float(self.loss(examples.batch(np.arange(len(examples)))))}


class Remembers(Toy):
    """Its loss is next to none while all that is filled in is true, and 1 otherwise."""

    def __init__(self, true=TRUE, **tokenizer):
        super().__init__(**tokenizer)
        whole = torch.full((len(FIELDS), LENGTH), -1)
        for number, tokens in true.items():
            whole[number, list(FIELDS[number])] = torch.tensor(tokens)
        self.true = nn.Parameter(whole.float())

    def losses(self, batch):
        self.rows += len(batch["input_ids"])
        true = self.true[batch["number"], : batch["input_ids"].shape[1]]
        filled = (true >= 0) & (batch["input_ids"] != MASK)
        wrong = (filled & (batch["input_ids"] != true)).any(1)
        return torch.where(wrong, 1.0, 1e-4)


class Silent(Remembers):
    """Has the same loss whatever it reads."""

    def losses(self, batch):
        return torch.full((len(batch["input_ids"]),), 0.7)


@dataclasses.dataclass(frozen=True)
class Held:
    """What the adversary holds of documents."""

    fields: tuple
    examples: Examples
    public: tuple


def scrubbed(numbers=tuple(FIELDS), public=("3 4 5 6", "6 5 4 3")):
    ids = np.random.default_rng(0).integers(2, VOCABULARY, (len(FIELDS), LENGTH))
    mask = np.ones((len(FIELDS), LENGTH), np.int64)
    for number, places in FIELDS.items():
        ids[number, list(places)] = MASK
        end = ENDS[number]
        ids[number, end:], mask[number, end:] = PAD, 0
    columns = {"input_ids": ids, "attention_mask": mask, "number": np.arange(len(FIELDS))}
    fields = tuple(ScrubbedField(n, f"document {n}", "date", FIELDS[n]) for n in numbers)
    return Held(fields, Examples.of(columns), tuple(page(text) for text in public))


def table(seed=0, spread=0.3):
    rng = torch.Generator().manual_seed(seed)
    return spread * torch.randn(VOCABULARY, VOCABULARY, generator=rng)


def box(*targets, scores=None):
    """The targets in the order of their rounds, and how PUB-MLM is built."""
    scores = table() if scores is None else scores
    return targets, lambda task: Bigrams(scores)


def guesses(attack, white, held, context, first=1):
    """What CDMI makes of the fields with each target."""
    targets, build = white
    boxes = [WhiteBox(f"round {n}", n, target.eval()) for n, target in enumerate(targets, first)]
    access = CDMIAccess(
        ModelSeries(tuple(lambda one=one: one for one in boxes)),
        ScrubbedFields(held.fields, held.examples, str),
        PublicDocuments(held.public),
        Architecture(build),
        None,
    )
    return attack.run(access, context)


def guessed(attack, white, held, context, first=1):
    (found,) = guesses(attack, white, held, context, first)
    return found


@pytest.fixture
def bench(tmp_path):
    def make(log=lambda line: None, scratch=tmp_path):
        return AttackContext(np.random.default_rng(3), log, scratch)

    return make


def attack(**settings):
    return CDMI(generator=settings.pop("generator", Training(epochs=0)), **settings)


def tokens(found, of="attempts"):
    return {one.number: [a.tokens for a in getattr(one, of)] for one in found.fields}


def test_whoever_was_trained_on_the_fields_gives_them_away(bench):
    found = guessed(attack(attempts=3, weight=0.6), box(Remembers()), scrubbed(), bench())

    assert tokens(found) == {number: [true] * 3 for number, true in TRUE.items()}
    silent = tokens(found, "baseline")
    assert not any(true in silent[number] for number, true in TRUE.items())


def test_an_attempt_has_all_metrics_and_the_baseline_one(bench):
    found = guessed(attack(attempts=2), box(Remembers()), scrubbed(), bench())

    metrics = {"raw", "ratio", "raw_and_ratio", "gap", "token_ratio"}
    assert found.membership == "gap"
    for one in found.fields:
        assert all(set(attempt.confidence) == metrics for attempt in one.attempts)
        assert all(set(attempt.confidence) == {PUBLIC} for attempt in one.baseline)


def test_first_token_and_its_confidence_by_hand(bench):
    # All of PUB-MLM's scores are equal: ĝ is 1/10 for each of ten tokens ([MASK] and [PAD] are
    # no candidates). Median loss 1: l̂ is to the others' as e^((2 - 0.0001)/0.5) to e^(1/0.5).
    settings = attack(attempts=1, weight=0.5, target_temperature=0.5)
    model = Remembers({0: (7, 4, 9), 1: (11, 2), 2: (5, 5, 10, 3)})

    found = guessed(settings, box(model, scores=torch.zeros(12, 12)), scrubbed((1,)), bench())

    favour = np.exp(0.5 * 0.9999 / 0.5)
    p = favour / (favour + 9)
    (attempt,) = found.fields[0].attempts
    assert attempt.tokens == (11, 2)
    assert attempt.confidence["raw"] == pytest.approx(10.0)
    assert attempt.confidence["ratio"] == pytest.approx(10 * p, rel=1e-5)
    assert attempt.confidence["gap"] == pytest.approx(p - 0.1, rel=1e-4)


def test_without_weight_attack_and_baseline_are_the_same(bench):
    found = guessed(attack(weight=0.0, nucleus=0.5), box(Remembers()), scrubbed(), bench())

    assert tokens(found) == tokens(found, "baseline")
    assert found.details["candidate_evaluations"] == 0


def test_a_target_that_tells_nothing_is_worth_as_much_as_the_silent_baseline(bench):
    settings = attack(weight=0.5, nucleus=0.9, baseline="silent")

    found = guessed(settings, box(Silent()), scrubbed(), bench())

    assert tokens(found) == tokens(found, "baseline")
    assert len({attempt for one in tokens(found).values() for attempt in one}) > 3


def test_an_attack_says_when_the_target_has_no_say(bench):
    found = guessed(attack(weight=0.4), box(Silent()), scrubbed(), bench())

    assert found.details["loss_spread"] == 0
    assert found.details["target_factor"] == 1
    assert found.details["choices_changed"] == 0
    assert "repeats the public model here" in found.mute
    assert "raises a token by 0.0% at most" in found.mute


@pytest.mark.parametrize("likelihood", ["paper", "scaled"])
def test_an_attack_whose_target_chooses_is_not_mute(bench, likelihood):
    found = guessed(attack(likelihood=likelihood), box(Remembers()), scrubbed(), bench())

    assert found.mute == ""
    # Nine candidates of loss 1 and one of 1e-4, while all before is right: √(.1 · .9).
    assert found.details["loss_spread"] == pytest.approx(0.3 * 0.9999, rel=1e-4)
    if likelihood == "paper":
        assert found.details["target_factor"] == pytest.approx(np.exp(0.4 * 0.9999 / 0.3), rel=1e-4)
    assert found.details["choices_changed"] > 0.5


def test_a_factor_is_that_of_the_mean_of_the_two_likelihoods(bench):
    alike = attack(mean="arithmetic", first_temperature=1e6, public_temperature=1e6)
    found = guessed(alike, box(Remembers()), scrubbed(), bench())

    # PUB-MLM gives each of the ten candidates .1; the target e^(1 / .3) times more to the true one.
    true = np.exp(0.9999 / 0.3) / (np.exp(0.9999 / 0.3) + 9)
    expected = (0.6 * 0.1 + 0.4 * true) / (0.6 * 0.1 + 0.4 * (1 - true) / 9)
    assert found.details["target_factor"] == pytest.approx(expected, rel=1e-3)


def test_a_masked_language_model_is_never_mute(bench):
    found = guessed(attack(), box(Bigrams(table())), scrubbed(), bench())

    assert found.mute == ""
    assert "loss_spread" not in found.details


def test_losses_nearly_alike_have_a_say_where_they_are_scaled(bench):
    class Hints(Remembers):
        def losses(self, batch):
            return 0.7 + 1e-3 * super().losses(batch)

    white = box(Hints())
    flat = guessed(attack(attempts=1), white, scrubbed(), bench())
    scaled = guessed(attack(attempts=1, likelihood="scaled"), white, scrubbed(), bench())

    assert "repeats the public model" in flat.mute
    assert tokens(flat) == tokens(flat, "baseline")
    assert tokens(scaled) == {number: [true] for number, true in TRUE.items()}


def test_a_masked_language_model_is_asked_itself(bench):
    certain = torch.zeros(VOCABULARY, VOCABULARY)
    certain[:, 8] = 20.0

    found = guessed(attack(attempts=2), box(Bigrams(certain)), scrubbed(), bench())

    assert tokens(found) == {n: [(8,) * len(places)] * 2 for n, places in FIELDS.items()}
    assert (8, 8, 8) not in tokens(found, "baseline")[0]
    assert found.details["candidate_evaluations"] == 0


def test_confidence_in_a_masked_language_model_by_hand(bench):
    # Two candidates, the target's: p = (3, 1)/4, and of the public scores ĝ = (1, 4)/5.
    certain, public = torch.full((12, 12), -10.0), torch.zeros(12, 12)
    certain[:, 8], certain[:, 9] = np.log(3), 0.0
    public[:, 9], public[:, 5] = np.log(4), 10.0
    settings = attack(candidates=2, first_temperature=1.0, public_temperature=1.0)

    found = guessed(settings, box(Bigrams(certain), scores=public), scrubbed((1,)), bench())

    attempt = found.fields[0].attempts[0]
    assert attempt.tokens == (8, 8)
    assert attempt.confidence["raw"] == pytest.approx(5.0)
    assert attempt.confidence["token_ratio"] == pytest.approx(3.75)
    assert found.fields[0].baseline[0].tokens == (5, 5)


def test_a_target_that_is_the_public_model_gives_the_baseline(bench):
    found = guessed(attack(nucleus=0.7), box(Bigrams(table())), scrubbed(), bench())

    assert tokens(found) == tokens(found, "baseline")
    for one in found.fields:
        assert {attempt.confidence["gap"] for attempt in one.attempts} == {0.0}
        assert {attempt.confidence["token_ratio"] for attempt in one.attempts} == {1.0}


def test_a_baseline_that_would_start_from_the_attacked_weights_is_refused(bench):
    with pytest.raises(NotApplicable, match=r"would start from the weights under attack \(table\)"):
        guessed(attack(), box(Bigrams(table())), scrubbed(), bench(), first=0)
    clean = guessed(attack(), box(Bigrams(table(1))), scrubbed(), bench(), first=0)
    assert clean.round == 0


def test_the_attacked_start_is_no_public_model():
    known = SimpleNamespace(state={"table": table(7)})
    target, asked = Bigrams(table(7)), []

    def build(**settings):
        asked.append(settings)
        return Bigrams(table(1))

    for start, taken, settings in (
        (None, 7, {"task": "mlm"}),
        ("random", 1, {"task": "mlm", "pretrained": None}),
        ("a folder", 1, {"task": "mlm", "pretrained": "a folder"}),
    ):
        own = untrained(Architecture(build), target, known, start)
        assert own.table.equal(table(taken))
        assert asked.pop() == settings


def test_the_first_attempt_is_the_one_shot_attack(bench):
    many = guessed(attack(attempts=4, nucleus=0.9), box(Remembers()), scrubbed(), bench())
    one = guessed(attack(attempts=1, nucleus=0.9), box(Remembers()), scrubbed(), bench())

    assert {n: own[:1] for n, own in tokens(many).items()} == tokens(one)


def test_neither_order_nor_company_of_the_fields_matters(bench):
    settings = attack(nucleus=0.9, fields_per_chunk=2)
    whole = guessed(settings, box(Remembers()), scrubbed(), bench())
    turned = guessed(settings, box(Remembers()), scrubbed((2, 0, 1)), bench())
    alone = guessed(settings, box(Remembers()), scrubbed((1,)), bench())

    assert tokens(whole) == tokens(turned)
    assert [one.number for one in turned.fields] == [2, 0, 1]
    assert tokens(alone)[1] == tokens(whole)[1]


def test_attempts_that_went_the_same_way_share_their_evaluations(bench, monkeypatch, tmp_path):
    sharing = Remembers()
    shared = guessed(attack(weight=0.6), box(sharing), scrubbed(), bench())
    monkeypatch.setattr(decoding, "distinct", list)
    apart = Remembers()
    other = bench(scratch=tmp_path / "other")
    single = guessed(attack(weight=0.6), box(apart), scrubbed(), other)

    assert tokens(shared) == tokens(single)
    asked = 8 * 10 * sum(map(len, FIELDS.values()))  # attempts, candidates, tokens
    assert sharing.rows == shared.details["candidate_evaluations"] == asked // 8
    assert shared.details["candidate_evaluations_asked"] == asked
    assert apart.rows == asked


def test_batches_change_nothing(bench):
    found = [
        tokens(guessed(attack(nucleus=0.9, batch_size=size), box(Remembers()), scrubbed(), b))
        for size, b in ((128, bench()), (7, bench()))
    ]

    assert found[0] == found[1]


class Killed(Exception):
    pass


def killed_after(lines):
    said = []

    def log(line):
        said.append(line)
        if len(said) == lines:
            raise Killed

    return log


def test_a_killed_attack_is_gone_on_with_to_the_same_bits(bench, tmp_path):
    settings = attack(nucleus=0.9, fields_per_chunk=1)
    elsewhere = bench(scratch=tmp_path / "whole")
    whole = guessed(settings, box(Remembers()), scrubbed(), elsewhere)

    with pytest.raises(Killed):
        guessed(settings, box(Remembers()), scrubbed(), bench(killed_after(3)))
    second = Remembers()
    resumed = guessed(settings, box(second), scrubbed(), bench())

    assert resumed.fields == whole.fields
    evaluations = whole.details["candidate_evaluations"]
    assert 0 < second.rows < evaluations == resumed.details["candidate_evaluations"]


def test_what_other_code_has_done_is_done_again(bench, monkeypatch):
    settings = attack(generator=Training(epochs=3, lr=0.1))
    guessed(settings, box(Remembers()), scrubbed(), bench())
    same = Remembers()
    guessed(settings, box(same), scrubbed(), bench())
    assert same.rows == 0

    monkeypatch.setattr(kept, "code", lambda: "other code")
    other, said = Remembers(), []
    guessed(settings, box(other), scrubbed(), bench(said.append))
    assert other.rows > 0
    assert "PUB-MLM was trained before" not in said


def test_a_line_that_was_cut_off_is_done_again(bench, tmp_path):
    settings = attack(fields_per_chunk=1)
    first = guessed(settings, box(Remembers()), scrubbed(), bench())
    (kept,) = tmp_path.glob("cdmi-*.jsonl")
    kept.write_bytes(kept.read_bytes()[:-40])

    second = Remembers()
    again = guessed(settings, box(second), scrubbed(), bench())

    assert again.fields == first.fields
    assert second.rows > 0
    assert len([json.loads(line) for line in kept.read_text().splitlines()]) == len(FIELDS)


def test_a_model_of_a_series_is_attacked_as_it_would_be_alone(bench):
    models = Remembers(), Silent(), Remembers({0: (2, 2, 2), 1: (3, 3), 2: (4, 4, 4, 4)})
    settings = attack(nucleus=0.9, weight=0.6)

    series = guesses(settings, box(*models), scrubbed(), bench())

    assert [one.model for one in series] == ["round 1", "round 2", "round 3"]
    assert [one.round for one in series] == [1, 2, 3]
    for model, one in zip(models, series, strict=True):
        assert one.fields == guessed(settings, box(model), scrubbed(), bench()).fields


def test_one_model_of_a_series_that_cannot_be_attacked_does_not_cost_the_others(bench):
    context, maskless = bench(), Remembers(mask=None)
    found = guesses(attack(), box(maskless, Remembers()), scrubbed(), context)

    assert [one.model for one in found] == ["round 2"]
    (refused,) = context.remarks.not_applicable.items()
    assert refused[0] == "round 1"
    assert "no mask token" in refused[1]
    assert any("weight of the target's likelihood" in note for note in context.remarks.notes)
    with pytest.raises(NotApplicable, match=r"^the target's tokenizer has no mask token[^;]*$"):
        guesses(attack(), box(maskless, Remembers(mask=None)), scrubbed(), bench())


def test_a_public_model_that_starts_anywhere_is_told(bench):
    context = bench()
    guessed(attack(), box(Remembers()), scrubbed(), context)

    assert "PUB-MLM starts from random weights" in context.remarks.notes


def test_another_target_is_attacked_anew_with_the_same_public_model(bench, tmp_path):
    settings = attack(generator=Training(epochs=3, lr=0.1))
    guessed(settings, box(Remembers()), scrubbed(), bench())
    said = []
    other = Remembers({0: (2, 2, 2), 1: (3, 3), 2: (4, 4, 4, 4)})
    guessed(settings, box(other), scrubbed(), bench(said.append))

    assert other.rows > 0
    assert said[1] == "PUB-MLM was trained before"
    assert len(list(tmp_path.glob("cdmi-public-mlm-*"))) == 1


def test_the_public_model_learns_from_the_public_documents(bench):
    settings = attack(generator=Training(epochs=60, lr=0.5, batch_size=2), weight=0.0)
    data = scrubbed(public=("2 6 2 6 2 6", "6 2 6 2 6 2"))
    columns = {name: np.array(data.examples.column(name)) for name in data.examples.columns}
    columns["input_ids"][1, 1] = 6  # stands before field 1
    data = dataclasses.replace(data, examples=Examples.of(columns))

    before = torch.random.get_rng_state()
    found = guessed(settings, box(Remembers(), scores=torch.zeros(12, 12)), data, bench())

    assert set(tokens(found)[1]) == {(2, 6)}
    assert found.details["generator_loss"] < 0.1
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_public_model_is_that_of_the_best_epoch_on_documents_held_out(bench):
    said = []
    data = scrubbed(public=("2 6 2 6 2 6",) * 4 + ("2 2 2 2 2 2",))
    losses = {}
    for share in (0.0, 0.2):
        settings = attack(
            generator=Training(epochs=40, lr=0.5, held_out=share, criterion="loss"), weight=0.0
        )
        start = torch.zeros(12, 12)
        losses[share] = guessed(
            settings, box(Remembers(), scores=start), data, bench(said.append)
        ).details["generator_loss"]
    told = [float(line.split("best ")[1]) for line in said if "best" in line]
    assert told == sorted(told)
    assert losses[0.2] == pytest.approx(-told[-1], abs=1e-3)
    assert Training().worth({"loss": 2.0, "accuracy": 0.3}) == 0.3
    assert Training(criterion="loss").worth({"loss": 2.0, "accuracy": 0.3}) == -2.0
    with pytest.raises(ValueError, match="criterion='best'"):
        Training(criterion="best")
    for share in (-0.1, 1.0):
        with pytest.raises(ValueError, match=f"held_out={share}"):
            Training(held_out=share)


def test_scrubbed_windows_stay_as_they_are(bench):
    data = scrubbed()
    before = {name: data.examples.column(name) for name in data.examples.columns}

    guessed(attack(), box(Remembers()), data, bench())

    for name, column in before.items():
        np.testing.assert_array_equal(data.examples.column(name), column)


def test_fields_that_cannot_be_attacked_are_counted(bench):
    data = scrubbed((0, 1))
    gone = ScrubbedField(2, "document 2", "total", ())
    plain = ScrubbedField(2, "document 2", "company", (2, 3))
    data = dataclasses.replace(data, fields=(gone, *data.fields, plain))

    context = bench()
    found = guessed(attack(), box(Remembers()), data, context)

    assert [one.number for one in found.fields] == [0, 1]
    assert context.remarks.left_out == {
        "no token of the field is in its window": 1,
        "the window is not masked where the field stands": 1,
    }


def test_no_field_at_all_is_no_error(bench):
    found = guessed(attack(), box(Remembers()), scrubbed(()), bench())

    assert found.fields == ()


def test_another_tokenizer_is_refused(bench):
    with pytest.raises(NotApplicable, match=r"tokenizer \(other\) is not PUB-MLM's \(toy\)"):
        guessed(attack(), box(Remembers(digest="other")), scrubbed(), bench())


def test_a_target_without_mask_token_is_refused(bench):
    with pytest.raises(NotApplicable, match="no mask token"):
        guessed(attack(), box(Remembers(mask=None)), scrubbed(), bench())


def test_no_public_documents_say_what_grants_them(bench):
    with pytest.raises(ValueError, match=r"data\.public"):
        guessed(attack(), box(Remembers()), scrubbed(public=()), bench())


def test_a_diverged_target_is_refused(bench):
    class Diverged(Remembers):
        def losses(self, batch):
            return super().losses(batch) * float("nan")

    with pytest.raises(NotApplicable, match="diverged"):
        guessed(attack(), box(Diverged()), scrubbed(), bench())


def test_a_public_model_that_diverges_names_its_rate(bench):
    settings = attack(generator=Training(epochs=5, lr=1e4))

    with pytest.raises(ValueError, match=r"lr=10000"):
        guessed(settings, box(Remembers(), scores=1e38 * table()), scrubbed(), bench())


def test_noise_needs_a_page_and_that_is_said_before_anything_is_trained(bench, tmp_path):
    with pytest.raises(NotApplicable, match="reads no page"):
        guessed(attack(visual="noise"), box(Remembers()), scrubbed(), bench())

    assert not list(tmp_path.glob("cdmi-*"))


def test_a_public_model_that_cannot_guess_what_was_held_out_has_diverged(bench):
    class Astray(Bigrams):
        def evaluate(self, examples):
            return {"loss": float("nan")}

    settings = attack(generator=Training(epochs=2, held_out=0.5))
    white = (Remembers(),), lambda task: Astray(table())

    with pytest.raises(ValueError, match="diverged in epoch 1"):
        guessed(settings, white, scrubbed(), bench())


def test_models_of_the_same_weights_and_other_settings_are_told_apart():
    def made(**settings):
        torch.manual_seed(0)
        return bros(task="mlm", max_length=16, layers=1, **settings)

    others = [made(dropout=0.1), made(box_scale=3.0)]
    weights = made().state_dict()

    assert all(torch.equal(weights[name], t) for o in others for name, t in o.state_dict().items())
    assert fingerprint({"model": made()}) == fingerprint({"model": made()})
    assert len({fingerprint({"model": model}) for model in (made(), *others)}) == 3


def test_noise_takes_the_place_of_the_page_in_the_target_only(bench):
    shown = []

    class Sees(Silent):
        def seen(self, batch):
            ids = batch["input_ids"]
            features = torch.linspace(5.0, 7.0, 256).expand(*ids.shape, 256)
            return {**batch, VISUAL: features}

        def losses(self, batch):
            shown.append(batch[VISUAL])
            return super().losses(batch)

    guessed(attack(attempts=1), box(Sees()), scrubbed((0,)), bench())
    (page,), shown[:] = {tuple(one[0, 0].tolist()) for one in shown}, []
    guessed(attack(attempts=1, visual="noise"), box(Sees()), scrubbed((0,)), bench())

    noise = shown[0][0]
    assert page[0] == 5.0
    assert len({tuple(one[0, 0].tolist()) for one in shown}) == 1  # the same at each step
    assert noise.mean() == pytest.approx(6.0, abs=0.1)
    assert noise.std() == pytest.approx(np.std(page), rel=0.1)
    assert len(noise.unique()) == noise.numel()


RECEIPTS = ["SAM 'S RESTAURANT 3", "SHOP 25/12/2018 4", "SHOP 25/12/18 5", "SHOP 01/02/2017 6"]


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({}, ["3", "4", "5", "6"]),
        ({"shift": "without_restaurants"}, ["4", "5", "6"]),
        ({"shift": "without_2018"}, ["3", "6"]),
        ({"without": r"\bSHOP\b"}, ["3"]),
        ({"shift": "without_2018", "without": "2017"}, ["3"]),
    ],
)
def test_public_documents_of_another_distribution(settings, left):
    documents = [page(text) for text in RECEIPTS]

    kept = PublicData(**settings).of(documents)

    assert [document.words[-1].text for document in kept] == left


def test_another_data_set_takes_the_place_of_the_public_documents():
    other = SimpleNamespace(
        load=lambda: DocumentSet("o", (page("form", name="other"),), ("total", "date"))
    )

    (kept,) = PublicData(other=other).of([page("receipt")])

    assert kept.id == "other"


def test_a_pattern_that_leaves_nothing_is_named():
    with pytest.raises(ValueError, match="without='receipt'"):
        PublicData(without="receipt").of([page("receipt")])


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: CDMI(attempts=0), "attempts=0"),
        (lambda: CDMI(batch_size=0), "batch_size=0"),
        (lambda: CDMI(fields_per_chunk=0), "fields_per_chunk=0"),
        (lambda: CDMI(membership="loss"), "membership='loss'"),
        (lambda: CDMI(baseline="none"), "baseline='none'"),
        (lambda: CDMI(visual="text"), "visual='text'"),
        (lambda: CDMI(weight=2.0), "weight=2.0"),
        (lambda: Training(epochs=-1), "epochs=-1"),
        (lambda: Training(batch_size=0), "batch_size=0"),
        (lambda: Training(lr=0.0), "lr=0.0"),
        (lambda: PublicData(shift="without_dogs"), "shift='without_dogs'"),
        (lambda: PublicData(without="("), r"without='\('"),
    ],
)
def test_wrong_settings_are_named_with_their_value(build, said):
    with pytest.raises(ValueError, match=said):
        build()
