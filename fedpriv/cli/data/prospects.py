"""What models, strategies and attacks would have to work with in a data set.

Numbers are those of the usual hold-out: a fifth of the documents, and a quarter of the providers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fedpriv.threat.scoring.all  # noqa: F401 - registers the scorers
from fedpriv.data.document import Document, DocumentSet
from fedpriv.data.partition import HoldOut
from fedpriv.report.wording import counted
from fedpriv.studies.assessing.matrix import Matrix
from fedpriv.studies.assessing.outlook import outlook, sides_of
from fedpriv.threat.claims import (
    FieldGuesses,
    FieldRanking,
    MembershipScores,
    MemorisationProbe,
    RecoveredBatch,
)
from fedpriv.threat.scoring.registry import SCORERS

HOLD_OUT = HoldOut("document", fraction=0.2, unseen=0.25)

ASSUMED = (
    f"data.test.by={HOLD_OUT.by} data.test.fraction={HOLD_OUT.fraction} "
    f"data.test.unseen={HOLD_OUT.unseen}"
)
"""The settings to which the numbers belong."""

TAG = ("layoutlmv3", "layoutlm", "bros", "bert", "roberta")
ANSWER = ("vt5", "donut", "pix2struct", "layoutlmv3 with model.task=answers")

OF_EXAMPLES = ("feam_dp", "fedavg_dp", "centralised_dp", "centralised_dp_sgd")
OF_PROVIDERS = (
    "fl_provider_dp", "fl_provider_dp_adam", "fl_provider_dp_one_step", "provider_bandmf",
    "centralised_provider_dp",
)  # fmt: skip
OF_CLIENTS = ("dp_fedavg",)
NOT_PRIVATE = ("fedavg", "fedsgd", "centralised")

ATTACKS: dict[type, tuple[str, ...]] = {
    MembershipScores: ("server_membership", "pmia", "provider_lira", "provider_rmia"),
    RecoveredBatch: (
        "april", "closed_form", "dlg", "gi_dqa", "gi_dqa_tuned", "idlg", "inverting_gradients",
        "random", "tag", "template_only", "text",
    ),
    FieldRanking: ("field_candidates", "field_search"),
    FieldGuesses: ("cdmi",),
    MemorisationProbe: ("memorisation", "extraction"),
}  # fmt: skip
"""Attacks by what they claim."""

PLANTED = ("audit", "exposure")
"""Attacks that bring their own suppliers."""


@dataclass(frozen=True)
class Prospect:
    """What something would have to work with.

    Attributes:
        what: that would work with it.
        works: whether there is enough.
        numbers: what there is, and what is missing.
    """

    what: str
    works: bool
    numbers: str

    def plain(self) -> dict[str, Any]:
        """Returns the same as JSON can hold it."""
        return {"what": self.what, "works": self.works, "numbers": self.numbers}


def prospects(found: DocumentSet) -> list[Prospect]:
    """Returns a line for each kind of model, strategy and attack; none without documents."""
    documents = found.documents
    if not documents:
        return []
    tagged = sum(bool(document.entities) for document in documents)
    asked = sum(any(q.answers for q in document.questions) for document in documents)
    train, unsplit = _split(documents)
    sizes = Counter(documents[at].provider for at in train)
    named = len({documents[at].client for at in train} - {""})
    questions = sum(bool(q.answers) for at in train for q in documents[at].questions)
    places = {(documents[at].provider, documents[at].client) for at in train}
    shared = sum(count > 1 for count in Counter(provider for provider, _ in places).values())
    clients = f"{counted(named, 'client')}, as the data name them"
    if not named:
        clients = f"at most {counted(len(sizes), 'client')}, one supplier each at least"
    trains = bool(tagged or asked)
    need_task = "" if trains else "; nothing to learn: give the table fields or questions"
    smallest = min(sizes.values(), default=0)
    usable = "" if trains else ", but no model can be trained"
    return [
        Prospect(
            f"models that tag words ({', '.join(TAG)})",
            tagged > 0,
            f"{counted(tagged, 'page')} with a field"
            + ("" if tagged else ": needs columns of fields in the table"),
        ),
        Prospect(
            f"models that answer ({', '.join(ANSWER)})",
            asked > 0,
            f"{counted(asked, 'page')} with a question"
            + ("" if asked else ": needs fields, or columns question and answer"),
        ),
        Prospect(
            f"strategies without noise ({', '.join(NOT_PRIVATE)})",
            len(train) > 0 and trains,
            f"{clients}{unsplit}{need_task}",
        ),
        Prospect(
            f"privacy of examples ({', '.join(OF_EXAMPLES)})",
            len(train) > 1 and trains,
            f"{counted(len(train), 'page')} trained on, privacy.examples={len(train)} of a model "
            f"that tags; privacy.examples={questions} of one that answers{need_task}",
        ),
        Prospect(
            f"privacy of suppliers ({', '.join(OF_PROVIDERS)})",
            len(sizes) > 1 and trains and not shared,
            f"{counted(shared, 'supplier')} at several clients, which is refused: protect clients "
            "(strategy=dp_fedavg), or leave data.source.client out"
            if shared
            else f"{counted(len(sizes), 'supplier')} trained on, the smallest of "
            f"{counted(smallest, 'page')}: privacy.providers is the fewest that any client has"
            f"{need_task}",
        ),
        Prospect(
            f"privacy of clients ({', '.join(OF_CLIENTS)})",
            len(sizes) > 1 and trains,
            f"{clients}{need_task}",
        ),
        *_of_attacks(documents, train, unsplit, trains, named or len(sizes)),
        Prospect(
            f"How exposed are planted secrets? ({', '.join(PLANTED)})",
            trains,
            f"these bring their own suppliers (data.canaries){usable}",
        ),
    ]


def _split(documents: Sequence[Document]) -> tuple[list[int], str]:
    """Returns what is trained on, and what is wrong with the usual hold-out."""
    try:
        return HOLD_OUT.split(documents, 0)[0], ""
    except ValueError as error:
        return list(range(len(documents))), f" (nothing held out: {error})"


def _of_attacks(
    documents: Sequence[Document], train: list[int], unsplit: str, trains: bool, clients: int
) -> Iterator[Prospect]:
    """Yields what attacks could tell, a line for each kind of claim."""
    held = set(range(len(documents))) - set(train)
    asked = [] if unsplit else HOLD_OUT.asked(documents, 0)
    units = sides_of(documents, train, held, asked, clients=clients)
    known = Matrix.of("data check").attacks
    for claim, names in ATTACKS.items():
        if power := SCORERS[claim].power:
            one = outlook(power, units)
            made = [known[name] for name in names if name in known]
            minutes = sorted(float(one.get("minutes", 0.5)) for one in made)
            took = " to ".join(f"{each:g}" for each in dict.fromkeys(minutes[:1] + minutes[-1:]))
            yield Prospect(
                f"{one.question} ({', '.join(names)})",
                trains and (one.enough or (one.alone and one.inside > 0)),
                f"{one.here}{unsplit}: {one.says}; {took} minutes each, with a tiny model"
                if trains
                else "no model can be trained",
            )
