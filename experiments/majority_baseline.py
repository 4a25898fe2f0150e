"""What needs no learning: the F1 of the majority tag, on the held-out documents of an experiment.

    python experiments/majority_baseline.py sroie_kie [key=value …]

Two baselines: the most frequent tag for every word (which is O, so F1 is 0), and the most frequent
tag of each word's text among the training documents, O for texts never seen.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from fedpriv.config import experiment
from fedpriv.data.document import Document
from fedpriv.federation.dataset import DocumentData
from fedpriv.metrics.entities import entity_scores

OF_ALL = "majority tag"
OF_EACH_WORD = "majority tag of each word"


def main(name: str, *overrides: str) -> None:
    """Prints both baselines."""
    built = experiment.build(experiment.load(name, overrides), name)
    if not isinstance(built.data, DocumentData):
        raise TypeError(f"{name} is not about documents")
    documents = built.data.source.load().documents
    train, held = built.data.test.split(documents, built.seed)
    for baseline, scores in baselines(documents, train, held).items():
        print(f"{baseline:<28}", "  ".join(f"{k} {v:.4f}" for k, v in scores.items()))


def baselines(
    documents: Sequence[Document], train: Iterable[int], held: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Returns the scores of both baselines on the documents at the positions `held`."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for position in train:
        for word, tag in zip(documents[position].words, documents[position].tags(), strict=True):
            counts[word.text.lower()][tag] += 1
            counts[""][tag] += 1
    (majority, _), *_ = counts.pop("").most_common(1)
    most = {text: tags.most_common(1)[0][0] for text, tags in counts.items()}
    true = [documents[position].tags() for position in held]
    guesses = {
        OF_ALL: [[majority] * len(tags) for tags in true],
        OF_EACH_WORD: [
            [most.get(word.text.lower(), majority) for word in documents[position].words]
            for position in held
        ],
    }
    return {name: entity_scores(true, predicted) for name, predicted in guesses.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
