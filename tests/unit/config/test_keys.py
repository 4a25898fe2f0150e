"""What fedpriv's classes take stands in keys.json, which this script writes anew."""

import inspect
import json
from pathlib import Path

import yaml

import fedpriv
from fedpriv.config import construct
from fedpriv.config.experiment import Experiment
from fedpriv.config.trust import targets

FOLDER = Path(fedpriv.__file__).parent
FILE = FOLDER / "config" / "keys.json"
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def add(target, found):
    """Adds what a class or function takes, and the dataclasses of its sections."""
    path = construct._full_name(target)
    parameters = inspect.signature(target).parameters.values()
    if path in found or any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    names = [one.name for one in parameters if one.kind in NAMED]
    kinds = {name: construct.section_type(target, name) for name in names}
    found[path] = {name: kind and construct._full_name(kind) for name, kind in kinds.items()}
    for kind in filter(None, kinds.values()):
        add(kind, found)


def written():
    found = {}
    add(Experiment, found)
    for file in sorted((FOLDER / "experiments").rglob("*.yaml")):
        for _, path in targets(yaml.safe_load(file.read_text("utf-8")), ""):
            if path.startswith("fedpriv."):
                add(construct.import_target(path), found)
    lines = (f'"{path}": {json.dumps(found[path])}' for path in sorted(found))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_the_keys_are_those_of_the_classes():
    assert FILE.read_text("utf-8") == written(), "run python tests/unit/config/test_keys.py"
    assert len(construct.known_keys()) > 80


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
