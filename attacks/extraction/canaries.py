"""Choosing canaries: samples whose answer only the model gives (Pinto et al., §3)."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedpriv.attacks.extraction.canary import Canary, normalised
from fedpriv.attacks.extraction.inferable import RULES
from fedpriv.attacks.extraction.pii import CLASSES, Tagger, pii_class
from fedpriv.data.document import Document, Question
from fedpriv.data.redaction.answers import check_margin, letters, without_answer
from fedpriv.data.redaction.painting import MARGIN, CannotRemove
from fedpriv.federation.dataset import PLANTED
from fedpriv.threat.checks import check_least

BY_HAND = "left out by hand"

CONSTANT, LEAST_CONSTANT = 0.5, 3
"""Share of a key's answers, and number of samples, above and from which an answer is guessed."""


@dataclass(frozen=True)
class Chosen:
    """What `Curation.choose` returns.

    Attributes:
        canaries: in the order of the documents.
        drawn: samples that were looked at: `canaries` and all that were dropped.
        dropped: how many for each reason, in the order in which the reasons are asked for.
    """

    canaries: tuple[Canary, ...]
    drawn: int
    dropped: Mapping[str, int]


@dataclass(frozen=True)
class Curation:
    """Draws samples of a training set, and drops those that would show nothing.

    The paper's authors looked at each of 5,400 samples and kept 4,654; rules stand in for their
    eyes. A sample is dropped for the first of these reasons that holds:

    - "not found": the words of the page do not spell the answer, or it has no letter or digit;
    - "trace left": the answer may still be read on the page (`without_answer`);
    - "too short": an accepted answer has fewer letters and digits than `least_letters`;
    - "in the question": the question names it;
    - "sequence": it is between two numbers of its line or column, in steps of 1 or of a third's;
    - "sum": it is left in another form, or the sum, difference or product of amounts side by side;
    - "spelt elsewhere": it is a name most of which stands in what is left, as in an e-mail address;
    - "date elsewhere": it is a date that is left in another form;
    - "constant": more than half of the training answers of its key are this one, and three at
      least. For samples without a key, which real data often has, this is asked of all together.

    Whoever has looked at the samples, as the authors did, names those to keep. All others are
    dropped as "left out by hand".

    Planted samples, those of providers that start with "canary ", all come in beside those that
    are drawn. They are dropped for the first two reasons only: they are known to be random.

    Attributes:
        count: the number of training samples that are drawn, before any is dropped. None takes all.
        keys: the keys of the questions that are drawn. An empty list allows all keys.
        rules: the reasons for which a sample is dropped because its answer can be guessed: "in the
            question", "sequence", "sum", "spelt elsewhere", "date elsewhere" and "constant".
        least_letters: the smallest number of letters and digits in an accepted answer. Samples with
            a shorter one are dropped.
        names: the names of the samples to keep, as `canaries.json` of an earlier attack has them.
            An empty list keeps all that no rule drops.
        tagger: a function that returns the class of personal information of a question's key and an
            answer. A YAML file names its dotted path as `_target_`, with `_partial_: true`.
        margin: how far the white box over a removed answer extends beyond the answer on each side,
            as a share of its height, but at least two pixels.
    """

    count: int | None = None
    keys: tuple[str, ...] = ()
    rules: tuple[str, ...] = (*RULES, "constant")
    least_letters: int = 2
    names: tuple[str, ...] = ()
    tagger: Tagger = field(default=pii_class)
    margin: float = MARGIN

    def __post_init__(self) -> None:
        check_least(self, 0, "count")
        check_least(self, 1, "least_letters")
        if unknown := sorted(set(self.rules) - {*RULES, "constant"}):
            raise ValueError(
                f"rules names {unknown}: expected some of {', '.join(RULES)}, constant"
            )
        check_margin(self.margin)

    def choose(self, documents: Sequence[Document], rng: np.random.Generator) -> Chosen:
        """Returns the canaries among the samples of a training set.

        Args:
            documents: that are trained on, whose questions are the samples.
            rng: of the draw.

        Raises:
            ValueError: if there are fewer samples than `count`, or none of one of the keys or of
                one of the names.
        """
        samples = [
            _Sample(page, place) for page in documents for place in range(len(page.questions))
        ]
        answers = _Answers(samples)
        drawn = [self._canary(sample, answers) for sample in self._drawn(samples, rng)]
        found = tuple(one for one in drawn if isinstance(one, Canary))
        why = Counter(one for one in drawn if isinstance(one, str))
        reasons = ("not found", "trace left", BY_HAND, "too short", *RULES, "constant")
        return Chosen(found, len(drawn), {r: why[r] for r in reasons if why[r]})

    def _drawn(self, samples: Sequence[_Sample], rng: np.random.Generator) -> list[_Sample]:
        """Returns the samples that are drawn and those that are planted, in their order."""
        there = {sample.question.key for sample in samples}
        if unknown := sorted(set(self.keys) - there):
            raise ValueError(f"keys names {unknown}: there are samples of {sorted(there)}")
        if missing := sorted(set(self.names) - {sample.name for sample in samples}):
            raise ValueError(f"names: there is no sample {missing[0]!r} ({len(missing)} of these)")
        planted = [place for place, sample in enumerate(samples) if sample.planted]
        others = [
            place
            for place, sample in enumerate(samples)
            if not sample.planted and (not self.keys or sample.question.key in self.keys)
        ]
        count = len(others) if self.count is None else self.count
        if count > len(others):
            raise ValueError(f"count={count}: there are {len(others)} samples to draw from")
        chosen = rng.choice(len(others), count, replace=False).tolist()
        return [samples[place] for place in sorted([*planted, *(others[i] for i in chosen)])]

    def _canary(self, sample: _Sample, answers: _Answers) -> Canary | str:
        """Returns the canary that a sample is, or why it is none.

        Raises:
            ValueError: if the tagger says something else than a class.
        """
        try:
            removed = without_answer(sample.document, sample.question, margin=self.margin)
        except CannotRemove:
            return "not found"
        if removed.residual:
            return "trace left"
        question = sample.question
        if not sample.planted:
            if self.names and sample.name not in self.names:
                return BY_HAND
            if min(len(letters(a)) for a in question.answers) < self.least_letters:
                return "too short"
            for name, rule in RULES.items():
                if name in self.rules and rule(removed):
                    return name
            if "constant" in self.rules and answers.is_constant(question):
                return "constant"
        pii = self.tagger(question.key, question.answers[0])
        if pii not in ("", *CLASSES):
            raise ValueError(
                f"the tagger says {pii!r}: expected one of {', '.join(CLASSES)}, or '' for none"
            )
        return Canary(
            name=sample.name,
            page=dataclasses.replace(sample.document, questions=(question,)),
            removed=removed.page,
            pii=pii,
            repeats=answers.all[normalised(question.answers[0])],
            planted=sample.planted,
        )


@dataclass(frozen=True)
class _Sample:
    """A question of a document."""

    document: Document
    place: int

    @property
    def question(self) -> Question:
        return self.document.questions[self.place]

    @property
    def name(self) -> str:
        return self.document.question_names()[self.place]

    @property
    def planted(self) -> bool:
        return self.document.provider.startswith(PLANTED)


class _Answers:
    """How often each answer is one of the training samples'."""

    def __init__(self, samples: Sequence[_Sample]) -> None:
        self.all: Counter[str] = Counter()
        self.of_key: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.samples_of_key: Counter[str] = Counter()
        for sample in samples:
            own = {normalised(answer) for answer in sample.question.answers}
            self.all.update(own)
            self.of_key[sample.question.key].update(own)
            self.samples_of_key[sample.question.key] += 1

    def is_constant(self, question: Question) -> bool:
        """Says whether who knows the key alone can guess the answer."""
        of_key, samples = self.of_key[question.key], self.samples_of_key[question.key]
        most = max(of_key[normalised(answer)] for answer in question.answers)
        return most >= LEAST_CONSTANT and most > CONSTANT * samples
