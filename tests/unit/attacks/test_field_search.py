"""Values that no list holds: put together from those of others, by a loss that tells them."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from attacked import attacked
from toy_fields import DIGITS, VOCABULARY, Follows, OneCode, federation

from fedpriv.attacks.field_candidates import CandidateRanking, _Objective
from fedpriv.attacks.field_search import Search
from fedpriv.data.generated.invoice_page import LABELS
from fedpriv.data.generated.invoices import Invoices
from fedpriv.models.encoders.backbones import layoutlm
from fedpriv.threat.access import ScrubbedField
from fedpriv.threat.candidates import Candidates
from fedpriv.threat.scoring.rankings import REPEATED

HIDDEN = (3, 1, 4, 1)
LISTED = [(3, 0, 0, 1), (0, 1, 4, 0), (7, 7, 7, 7), (3, 7, 7, 7)]
TOKENS = ((0, 1), (1, 2), (2, 3), (3, 4))


@dataclass
class Wrong:
    """The weighted number of tokens that are not those of `HIDDEN`; it is linear, so exact."""

    guided: bool = True
    asked: list = field(default_factory=list)

    def losses(self, values):
        self.asked += values
        return (np.array(values) != np.array(HIDDEN)) @ np.array([1.0, 2.0, 4.0, 8.0])

    def changes(self, values):
        if not self.guided:
            return None
        weights = np.array([1.0, 2.0, 4.0, 8.0])[:, None]
        wrong = (np.arange(10) != np.array(HIDDEN)[:, None]) * weights
        here = (np.array(values) != np.array(HIDDEN)) * weights[:, 0]
        return wrong[None] - here[:, :, None]


def searched(search, objective, listed=LISTED, words=TOKENS, fits=lambda value: True):
    rng = np.random.default_rng(0)
    visited = search.visit(objective, listed, fits, words, 10, rng)
    assert list(visited) == objective.asked  # each value once
    return visited, min(visited, key=visited.get)


@pytest.mark.parametrize("guided", [True, False])
def test_a_value_is_put_together_from_those_listed(guided):
    visited, best = searched(Search("tokens", beam=2), Wrong(guided))
    assert (best, visited[best]) == (HIDDEN, 0.0)
    assert HIDDEN not in LISTED


def test_only_listed_values_are_visited():
    visited, best = searched(Search("listed"), Wrong())
    assert set(visited) <= set(LISTED)
    assert best == (3, 0, 0, 1)  # its first and last tokens are right, and the last weighs most


def test_a_part_of_a_long_list_leads_to_its_best():
    every = [tuple(one) for one in itertools.product(range(8), repeat=4)]
    visited, best = searched(Search("listed", start=16, beam=4, width=16), Wrong(), every)
    assert best == HIDDEN
    assert len(visited) < len(every) / 4


def test_words_are_exchanged_as_a_whole():
    words = ((0, 2), (2, 4))
    visited, best = searched(Search("words"), Wrong(), words=words)
    heads, tails = {one[:2] for one in LISTED}, {one[2:] for one in LISTED}
    assert all(one[:2] in heads and one[2:] in tails for one in visited)
    assert best == (0, 1, 0, 1)  # the head of the second and the tail of the first


def test_tokens_that_no_list_holds_are_in_the_vocabulary():
    visited, best = searched(Search("vocabulary", width=4), Wrong(), [(9, 9, 9, 9)])
    assert best == HIDDEN
    assert len(visited) < 60
    _, best = searched(Search("tokens"), Wrong(), [(9, 9, 9, 9)])
    assert best == (9, 9, 9, 9)


def test_the_gradient_spares_the_model_most_moves():
    few = searched(Search("vocabulary", beam=1, width=1), Wrong(), [(9, 9, 9, 9)])
    many = searched(Search("vocabulary", beam=1, width=100), Wrong(), [(9, 9, 9, 9)])
    assert few[1] == many[1] == HIDDEN
    assert len(few[0]) == 9  # the start, and a move at each place in the first sweep and the last
    assert len(many[0]) > 60


def test_what_cannot_have_stood_there_is_not_visited():
    def even(value):
        return value[0] % 2 == 0

    visited, best = searched(Search("tokens"), Wrong(), [(0, 1, 0, 0), (2, 0, 4, 1)], fits=even)
    assert all(map(even, visited))
    assert best in {(0, 1, 4, 1), (2, 1, 4, 1)}


@pytest.mark.parametrize("setting", ["start", "beam", "width", "sweeps", "restarts"])
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ValueError, match=f"{setting}=0: expected"):
        Search(**{setting: 0})
    with pytest.raises(ValueError, match="space='words and tokens'"):
        Search("words and tokens")


# --- With models ----------------------------------------------------------------------------------


class Recites(Follows):
    """Knows which digit stands at each place of the code, whatever the page."""

    def __init__(self, labels=(), task="tags"):
        super().__init__(labels, task)
        self.digits = torch.nn.Parameter(torch.zeros(5, len(VOCABULARY)))

    def losses(self, batch):
        known = self.digits.log_softmax(1)[torch.arange(5), batch["input_ids"][:, 3:8]]
        return -known.mean(1)


@dataclass(frozen=True)
class OtherCodes:
    """Codes none of whose digits is at the place where the true one has it; each digit is seen."""

    def texts(self, rng):
        true = [DIGITS.index(w.text) for w in OneCode(12, 5).load().documents[0].words[2:7]]
        shifts = rng.permuted(np.tile(np.arange(1, 10), (5, 1)), axis=1)
        return [
            " ".join(DIGITS[(t + s) % 10] for t, s in zip(true, shift, strict=True))
            for shift in shifts.T
        ]


OPEN = Candidates("open", public=False, values={"code": OtherCodes()}, least=1, most=None)


@pytest.fixture(scope="module")
def recited(tmp_path_factory):
    return federation(tmp_path_factory.mktemp("runs"), source=OneCode(12, 5), model=Recites).run(8)


def test_a_value_is_found_that_no_list_holds_and_of_which_no_token_is_listed(recited):
    attack = CandidateRanking(search=Search("vocabulary"))
    found = attacked(recited.run_dir, attack, Recites, candidates=OPEN)
    trained = found["sides"][REPEATED]
    assert (trained["first"], trained["unlisted"], trained["tokens"]) == (1.0, 1.0, 1.0)
    assert (trained["listed"], trained["auc"], trained["chance"]) == (0.0, None, None)
    listed = attacked(recited.run_dir, CandidateRanking(), Recites, candidates=OPEN)
    assert listed["sides"][REPEATED]["first"] == listed["sides"][REPEATED]["tokens"] == 0.0
    assert listed["sides"][REPEATED]["unlisted"] is None


def test_a_model_before_its_training_gives_no_value_away(recited):
    attack = CandidateRanking(search=Search("vocabulary"))
    found = attacked(recited.run_dir, attack, Recites, target="start", candidates=OPEN)
    assert found["sides"][REPEATED]["first"] < 0.01
    assert found["verdict"] != "leak"


def test_a_search_is_not_begun_at_the_truth(recited):
    given = Candidates("given", public=False, values={"code": OtherCodes()}, least=1)
    found = attacked(recited.run_dir, CandidateRanking(search=Search()), Recites, candidates=given)
    assert found["status"] == "not applicable"
    assert "take candidates.game=open" in found["headline"]


def test_a_model_that_guesses_masked_tokens_is_not_searched(recited):
    attack = CandidateRanking(search=Search())
    found = attacked(
        recited.run_dir,
        attack,
        lambda labels=(), task="mlm": Recites(labels, "mlm"),
        candidates=OPEN,
    )
    assert found["status"] == "not applicable"
    assert "guesses masked tokens" in found["headline"]


def test_changes_are_those_of_the_loss_along_the_embeddings():
    documents = Invoices(providers=2, documents_per_provider=1).load().documents
    torch.manual_seed(0)
    target, reference = (layoutlm(LABELS, task="tags").eval() for _ in range(2))
    examples = target.encode(documents)
    places = (5, 6, 7)
    for models in ([target], [target, reference]):
        objective = _Objective(models, examples, ScrubbedField(0, "d", "total", places), 2)
        values = [(300, 301, 302), (40, 41, 42), (77, 78, 79)]
        changes = objective.changes(values)
        assert changes.shape == (3, 3, target.reader.subwords.size)
        step = 1e-2
        for model in models:
            # Token 9 moves a hundredth of the way to token 500: so does the loss.
            weight = model.encoder.word_embeddings.weight.data
            weight[9] = weight[41] + step * (weight[500] - weight[41])
        before, after = objective.losses([(40, 41, 42), (40, 9, 42)])
        assert after - before == pytest.approx(step * changes[1, 1, 500], rel=0.05)
