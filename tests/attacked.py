"""Attacks on run folders, as tests make them."""

from dataclasses import asdict

from fedpriv.threat.runner import run_attack_on


def attacked(run_dir, attack, model, name="attack", **settings):
    """Attacks a run and returns the result's fields and its numbers in one dictionary."""
    result = run_attack_on(run_dir, attack, model, name=name, settings=settings)
    return {**asdict(result), **result.details}
