"""The model of a finished run, from the settings in its folder."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def model_of(config: Mapping[str, Any], source: str) -> Callable[..., Any]:
    """Returns what builds a run's model, given `labels=`.

    With `task=` it builds one for another task, whole, whatever of the run's was trained.

    Raises:
        Mistakes: if the run's settings name none.
    """
    from fedpriv.config import experiment
    from fedpriv.training.adapters import FineTuned

    if "model" not in config:
        raise experiment.Mistakes(
            source,
            [
                "the run was started from Python, and its config.yaml names no model: attack it "
                "from there, with fedpriv.run_attack(run_dir, attack, model=...)"
            ],
        )
    section = experiment.constructed(
        experiment.ModelSection,
        {key: config[key] for key in ("model", "finetuning") if key in config},
        source,
    )
    tuning = section.finetuning
    if tuning is None:
        return section.model

    def tuned(labels: Sequence[str] = (), **other: Any) -> Any:
        if other:
            return section.model(labels=labels, **other)
        return FineTuned(functools.partial(section.model, labels=labels), tuning)()

    return tuned
