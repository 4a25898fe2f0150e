"""What is written as an override is read as it was: here, by Hydra, and out of a sweep's file."""

import math

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedpriv.config import experiment
from fedpriv.config.overrides import parsed, read, write
from fedpriv.studies import sweep

LETTERS = st.text("aü\"'\\\n\t =:{}[]()$,#~.-0e%@&*|!?")
WORDS = st.sampled_from(["", "2023", "true", "Null", "1e-3", "nan", " a ", "~", "C:\\", "./a b"])
TEXTS = LETTERS | WORDS | st.text(st.characters(codec="utf-8"))
SINGLE = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
NAMES = st.from_regex(r"[a-z_][a-z0-9_.-]{0,8}", fullmatch=True)


def nested(keys):
    def inside(inner):
        return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4)

    return st.recursive(SINGLE, inside, max_leaves=12)


def same(one, other):
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if isinstance(one, dict):
        alike = isinstance(other, dict) and [*one] == [*other]
        return alike and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        alike = isinstance(other, list) and len(one) == len(other)
        return alike and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(nested(TEXTS) | nested(NAMES | st.integers()))
@example({"Net (total)": "a", "": [{}]})
@example({3: [0, 2]})
def test_what_is_written_is_read(value):
    assert same(value, read(write(value)))


@given(nested(NAMES | st.integers()))
def test_hydra_reads_it_too(value):
    found = OverridesParser.create().parse_override(f"key={write(value)}")
    assert same(value, found.value())


# A text with ${ refers to another value, wherever it stands, and ??? is a value that is missing.
PLAIN = TEXTS.filter(lambda text: "${" not in text and text != "???")


@given(PLAIN)
@settings(max_examples=20)
def test_an_experiment_takes_it(text):
    key = "data.source.any"
    config = experiment.load("quickstart", [f"{key}={write([text, {'a': text}])}"])
    assert config["data"]["source"]["any"] == [text, {"a": text}]


@given(PLAIN)
def test_the_file_of_a_sweep_takes_it(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("sweep") / "any.yaml"
    sections = {"experiment": "quickstart", "columns": {"f1": "F1"}, "let": {"any": text}}
    content = {**sections, "run": {"data.source.any": "${let.any}"}}
    path.write_text(yaml.dump(content, default_style='"', allow_unicode=True), "utf-8")
    for overrides in ([], [f"any={write(text)}"]):
        (row,) = sweep.read(str(path), overrides).rows
        assert [parsed(word).value for word in row.run] == [text]
