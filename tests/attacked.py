"""Attacks on run folders, as tests make them."""

from dataclasses import asdict

from fedpriv.threat.runner import run_attack_on
from fedpriv.threat.settings import AttackSettings


def attacked(run_dir, attack, model, name="attack", **settings):
    """Attacks a run and returns the result's fields and its numbers in one dictionary."""
    result = run_attack_on(run_dir, attack, model, name=name, settings=AttackSettings(**settings))
    return {**asdict(result), **result.details}
