"""The memorisation tests of Tito et al. 2023 (§5.1, Appendix D.1).

A model is asked for what the page does not say. What it answers rightly all the same, it remembers
from training; on providers that were not trained on, it should answer nothing rightly.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain

from fedpriv.attacks.memorisation.pictures import pictures, telling
from fedpriv.attacks.memorisation.puzzles import absent, put, removed
from fedpriv.data.redaction.clues import LIKENESS, RADIUS, check_settings
from fedpriv.threat.access import BlackBox, GreyBox, HeldOutDocuments, PublicModel
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.checks import check_least
from fedpriv.threat.claims import MemorisationProbe


@dataclass(frozen=True)
class MemorisationAccess:
    """The final model and the public one, with confidence where it is granted."""

    model: BlackBox
    held_out: HeldOutDocuments
    confidence: GreyBox | None
    public: PublicModel | None


@dataclass(frozen=True)
class Memorisation:
    """Asks for what was taken off a page, and for what never stood there.

    A model that points at words of the page cannot answer with others, whatever it remembers: the
    tests are for models that write. What is on a page must be known by the keys of its questions
    or by its entities: the release of PFL-DocVQA has neither, and all its pages are left out. A
    page's own question comes first; the paper draws a training template for each.

    Args:
        keys: the keys of the questions in the removed test, whose answers are taken off the page
            ("company" and "address" for receipts).
        absent_keys: the keys of the questions in the absent test, on pages that do not say the
            answer. In the paper, few training questions have these keys.
        radius: the radius of the blur over removed words, in pixels of the page; 20 in the paper.
            Lines of text that are taller than this are blurred by their height.
        likeness: how like the answer a word must be to be removed with it, as a fuzzy-match score
            of 0 to 100. The paper gives no value.
        strip_absent: whether the absent test takes the answer off pages that say it. If False, it
            leaves such pages out, as the paper does.
        most_absent: the largest number of pages of a provider in the absent test; 5 in the paper.
        documents_per_provider: the number of pages of a provider in the removed test, from the
            first on. None takes all of them, as the paper does.
        pictures: the largest number of pages that the report shows.
    """

    keys: tuple[str, ...] = ("provider", "email", "tax_number", "registration_id")
    absent_keys: tuple[str, ...] = ("tax_number", "registration_id")
    radius: float = RADIUS
    likeness: float = LIKENESS
    strip_absent: bool = True
    most_absent: int = 5
    documents_per_provider: int | None = None
    pictures: int = 6

    def __post_init__(self) -> None:
        check_settings(self.radius, self.likeness)
        if not (*self.keys, *self.absent_keys):
            raise ValueError("keys=() and absent_keys=(): expected a key in one of them")
        check_least(self, 1, "documents_per_provider", "most_absent")
        check_least(self, 0, "pictures")

    def run(
        self, access: MemorisationAccess, context: AttackContext
    ) -> tuple[MemorisationProbe, ...]:
        """Puts the questions to the models; says nothing of who is a member."""
        most, documents = self.documents_per_provider, access.held_out.documents
        pages = [page for own in documents.values() for page in own[:most]]
        clearing = {"radius": self.radius, "likeness": self.likeness}
        items = chain(
            removed(pages, self.keys, context.rng, **clearing),
            absent(
                documents,
                self.absent_keys,
                context.rng,
                most=self.most_absent,
                strip=self.strip_absent,
                **clearing,
            ),
        )
        models: dict[str, tuple[BlackBox, GreyBox | None]]
        models = {"final": (access.model, access.confidence)}
        if access.public and access.public.answers:
            models["start"] = access.public.answers, access.public.confidence
        probes, skipped = put(items, models, context.log)
        remarks = context.remarks
        asked = {(probe.test, probe.key) for probe in probes}
        wanted = [("removed", key) for key in self.keys]
        wanted += [("absent", key) for key in self.absent_keys]
        for test, key in wanted:
            if (test, key) not in asked:
                whys = Counter(one.why for one in skipped if (one.test, one.key) == (test, key))
                said = [f"{why} ({count} pages)" for why, count in whys.most_common()]
                remarks.not_applicable[f"{test}/{key}"] = "; ".join(said) or "no pages"
        remarks.left_out |= Counter(f"{item.test}/{item.key}: {item.why}" for item in skipped)
        remarks.pictures |= pictures(telling(probes, self.pictures), pages, **clearing)
        remarks.notes.append(
            f"clues: words that are at least {self.likeness:g} of 100 alike are dropped, and where "
            f"they stood is blurred (radius {self.radius:g}, or the height of the words if that is "
            "more); a logo stays"
        )
        if self.absent_keys and self.strip_absent:
            remarks.notes.append(
                "absent: where a page says what is asked for, it was taken off first; Tito et al. "
                "leave such pages out (strip_absent=false)"
            )
        return tuple(probes)
