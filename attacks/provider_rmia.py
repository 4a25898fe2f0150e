"""Is a provider's likelihood raised above that of others? RMIA, strong with few reference models.

Zarifzadeh, Liu & Shokri 2024, "Low-Cost High-Power Membership Inference Attacks", for providers;
beyond Tito et al. 2023. How much likelier does the final model θ make the answer to a question x
than models in general do, and how does that compare with a question z that nobody trained on?

    ratio(x) = Pr(x | θ) / Pr(x)
    LR(x, z) = ratio(x) / ratio(z)
    score(x) = Pr_z(LR(x, z) >= γ)
    Pr(x)    = (Pr_in(x) + Pr_out(x)) / 2

Pr_in and Pr_out are means over the reference models that were trained on x's provider, and over
those that were not. Offline Pr_in is not known, and taken as a Pr_out + 1 - a.

What the paper leaves open, or fits badly here, is done thus. The ratio of a provider is the
geometric mean of those of its questions: their joint likelihood, but for the number of questions,
of which some providers have more. It is one of odds, Pr / (1 - Pr), in which .99 stands as far
above .9 as .1 above .01, for a model that reads is nearly certain of most answers. The population z
are providers of the adversary's own documents; without any, the other providers, some of whom are
members, which lowers all scores and leaves their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import rankdata

from fedpriv.attacks.reference_models import (
    Mask,
    OnReferences,
    ReferenceAccess,
    Row,
    Table,
    balanced_halves,
    check_finite,
    mean_of,
    means_where,
    split,
)
from fedpriv.data import promises
from fedpriv.data.document import Document, DocumentSource
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.checks import check_positive, check_share
from fedpriv.threat.claims import MEMBER, NON_MEMBER, MembershipScores

LEAST = 1e-6
"""Nothing is less probable, and nothing as much less than certain: no ratio is infinite."""

NOBODY = "population: "
"""In front of the names of the population's providers, which may be those of suspects."""


@dataclass(frozen=True)
class ProviderRMIA(OnReferences):
    """Judges each provider by how many others it dominates.

    With two references (VT5-tiny, 96 companies) the AUC was 0.84 with the signal "odds", and 0.64
    with "probability" as in the paper, which takes a=0.3 for images.

    Args:
        references: K, the number of reference models, each trained on half of the providers: 1 or
            an even number.
        statistic: where Pr_in, the probability of an answer under models trained on its provider,
            comes from: "offline" computes it from Pr_out, the probability under all other models,
            with the setting `a`; "online" measures it on the reference models, and allows no
            `population`.
        a: the number from 0 to 1 by which "offline" computes Pr_in = a Pr_out + 1 - a. Take 1 where
            training on a provider changes little of what is asked about it.
        signal: what the likelihood ratio of an answer with probability p compares: "odds",
            p / (1 - p); or "probability", p itself, as in the paper, which is worse here.
        gamma: γ, how many times another provider's likelihood ratio a provider's own must reach to
            dominate it.
        population: a source of documents from providers that nobody trained on, with which the
            judged providers are compared. None compares them with each other.
        false_positives: the share of the population's providers that would be taken for members. It
            has no effect without a population: half of the providers are then taken for members.
    """

    references: int = 2
    statistic: Literal["online", "offline"] = "offline"
    a: float = 1.0
    signal: Literal["odds", "probability"] = "odds"
    gamma: float = 1.0
    population: DocumentSource | None = None
    false_positives: float = 0.05

    def __post_init__(self) -> None:
        if self.references < 1 or (self.references > 1 and self.references % 2):
            raise ValueError(
                f"references={self.references}: expected 1, or an even number, so that every "
                "supplier is in half of them"
            )
        if self.population is not None and self.statistic == "online":
            raise ValueError(
                "statistic='online' with a population: no reference is trained on those suppliers, "
                "so that they are no measure for those that some are trained on; take 'offline'"
            )
        super().__post_init__()
        check_positive(self, "gamma")
        check_share(self, "false_positives")
        check_share(self, "a", none=True, all=True)

    def run(self, access: ReferenceAccess, context: AttackContext) -> MembershipScores:
        """Returns the scores of all providers.

        Raises:
            NotApplicable: if fewer than two providers have two documents, or a loss of the final
                model or of a reference is not finite.
        """
        suspects = access.held_out.documents
        taught, asked = split(suspects, self.train_share, context.rng)
        if sum(map(bool, taught.values())) < 2:
            raise NotApplicable(
                "fewer than two suppliers have two documents: one to train on, another to ask about"
            )
        pairs = self.references + self.references % 2
        eligible = [bool(pages) for pages in taught.values()]
        trained_on = balanced_halves(pairs, eligible, context.rng)[: self.references]
        everybody = asked | self._population()
        told = [access.model.losses(pages) for pages in everybody.values()]
        losses = np.array([loss for pages in told for page in pages for loss in page])
        answers = self.trained(access.public, taught, everybody, trained_on, context)
        # Windows of one question all have its loss.
        first = np.unique(answers.question, return_index=True)[1]
        owner = answers.owner[first]
        check_finite(mean_of(owner, losses), "the final model")
        for number, row in enumerate(answers.losses[:, first], 1):
            check_finite(mean_of(owner, row), f"reference {number}")
        final, references = np.exp(-losses), np.exp(-answers.losses[:, first])
        inside = np.zeros((len(trained_on), len(everybody)), np.bool_)
        inside[:, : len(asked)] = trained_on
        usual = usual_probabilities(
            at_level_of(final, references, owner),
            inside[:, owner],
            self.a,
            offline=self.statistic == "offline",
        )
        signal = log_odds if self.signal == "odds" else _log
        ratios = mean_of(owner, signal(final) - signal(usual))
        scores = dominance(
            ratios, np.arange(len(ratios)) >= (len(asked) if self.population else 0), self.gamma
        )
        return self._claim(asked, scores, context)

    def _population(self) -> dict[str, list[Document]]:
        """Returns the population's documents by provider."""
        found: dict[str, list[Document]] = {}
        for page in promises.load(self.population).documents if self.population else ():
            if page.questions and all(question.answers for question in page.questions):
                found.setdefault(f"{NOBODY}{page.provider}", []).append(page)
        return found

    def _claim(
        self, asked: Mapping[str, Sequence[Document]], all_scores: Row, context: AttackContext
    ) -> MembershipScores:
        """Returns the claim on those who were asked about, whose scores are in front."""
        scores, strangers = all_scores[: len(asked)], all_scores[len(asked) :]
        notes = context.remarks.notes
        if len(strangers):
            line = float(np.quantile(strangers, 1 - self.false_positives))
            notes.append(
                f"who scores above {1 - self.false_positives:.0%} of {len(strangers)} suppliers "
                "that nobody trained on is taken for a member"
            )
        else:
            line = float(np.median(scores))
            notes.append("half of the suppliers are taken to be members")
        guesses = np.where(scores > line, MEMBER, NON_MEMBER).astype(np.int8)
        return MembershipScores(tuple(asked), scores, guesses, "provider_rmia")


def usual_probabilities(references: Table, trained_on: Mask, a: float, *, offline: bool) -> Row:
    """Returns Pr(x), what models in general make of each question, (questions,).

    With one reference half of the providers have no Pr_out. It is then taken from Pr_in, by how
    much the mean log odds of those who were trained on are above the others'.

    Args:
        references: probabilities of the answers, (references, questions).
        trained_on: whether the reference was trained on the question's provider, likewise.
        a: of the line that stands in for Pr_in.
        offline: take Pr_in from the line wherever Pr_out is known.
    """
    inside, outside = means_where(references, trained_on), means_where(references, ~trained_on)
    gain = log_odds(references)[trained_on].mean() - log_odds(references)[~trained_on].mean()
    outside = np.where(np.isnan(outside), expit(log_odds(inside) - gain), outside)
    line = a * outside + 1 - a
    inside = line if offline else np.where(np.isnan(inside), line, inside)
    usual: Row = (inside + outside) / 2
    return usual


def at_level_of(final: Row, references: Table, owner: NDArray[np.int64]) -> Table:
    """Returns the references' probabilities as if they answered as well as the final model.

    Their log odds are moved so that the median provider's are the same. Otherwise two providers
    with Pr_out of different references could not be compared.

    Args:
        final: probabilities of the final model, (questions,).
        references: of the references, (references, questions).
        owner: place of the provider of each question.
    """

    def level(row: Row) -> float:
        return float(np.median(mean_of(owner, log_odds(row))))

    moved = [log_odds(row) - level(row) + level(final) for row in references]
    probabilities: Table = expit(np.array(moved))
    return probabilities


def dominance(ratios: Row, population: Mask, gamma: float) -> Row:
    """Returns the share of the population z that each provider dominates, (providers,).

    The paper's population are thousands. In ours many members dominate all; of those who dominate
    as many z, the ratio decides.

    Args:
        ratios: log ratio(x) of each provider, (providers,).
        population: which of them are z; nobody is held against itself.
        gamma: γ.
    """
    above = ratios[:, None] - ratios >= np.log(gamma)
    above &= population & ~np.eye(len(ratios), dtype=np.bool_)
    among = population.sum() - population
    scores: Row = (above.sum(axis=1) + rankdata(ratios) / (len(ratios) + 1)) / (among + 1)
    return scores


def log_odds(probabilities: Row) -> Row:
    """Returns log(p / (1 - p)), finite."""
    inner: Row = logit(np.clip(probabilities, LEAST, 1 - LEAST))
    return inner


def _log(probabilities: Row) -> Row:
    return np.log(np.maximum(probabilities, LEAST))
