"""`fedpriv model check`: what works with a model, ours or somebody else's."""

import json

import pytest
from transformers import LiltConfig, LiltForTokenClassification, ViTConfig, ViTModel

from fedpriv.cli.main import main
from fedpriv.models.readers.subwords import Subwords


@pytest.fixture(scope="module")
def lilt(tmp_path_factory):
    """The folder of a small LiLT, a family that fedpriv has no model of."""
    folder, subwords = tmp_path_factory.mktemp("lilt"), Subwords.shipped()
    config = LiltConfig(
        vocab_size=subwords.size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        channel_shrink_ratio=4,
        pad_token_id=subwords.pad,
    )
    LiltForTokenClassification(config).save_pretrained(folder)
    subwords.save_pretrained(folder)
    return folder


def found(capsys, *arguments):
    """What was told of a model, and its abilities by their first words."""
    assert main(["model", "check", *map(str, arguments), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    return facts, {one["what"].split(" (")[0]: one for one in facts["works"]}


PAGE = "inversion of the page"
SOLVED = "the page by linear algebra"
FIELDS = "attacks on fields"


def test_a_checkpoint_of_another_family(lilt, capsys):
    facts, works = found(capsys, lilt)
    assert facts["network"] == "LiltForTokenClassification"
    assert facts["does"] == "tags words"
    assert works["privacy of examples"]["how"] == "by ghost, vmap, loop"
    assert {what for what, one in works.items() if not one["works"]} == {PAGE, SOLVED}
    assert works[PAGE]["how"].startswith("it reads no page")


def test_its_settings_are_those_of_the_model(lilt, capsys):
    facts, works = found(capsys, lilt, "model.task=answers")
    assert facts["does"] == "answers questions"
    assert not works[FIELDS]["works"]


@pytest.mark.parametrize(
    ("name", "lacking"),
    [
        ("layoutlmv3", {FIELDS}),
        ("model=layoutlm", {PAGE, SOLVED}),
        ("donut", {SOLVED, FIELDS}),
    ],
)
def test_a_model_of_ours_by_its_name(name, lacking, capsys):
    _, works = found(capsys, name)
    assert {what for what, one in works.items() if not one["works"]} == lacking


def test_what_is_switched_off_does_not_work(capsys):
    _, works = found(capsys, "layoutlmv3", "model.image=false")
    assert not works[PAGE]["works"]
    assert works[SOLVED]["how"] == "this LayoutLMv3 reads no page (model.image=false)"


def test_a_folder_goes_before_a_choice_of_its_name(lilt, tmp_path, monkeypatch, capsys):
    (tmp_path / "roberta").symlink_to(lilt)
    monkeypatch.chdir(tmp_path)
    assert found(capsys, "roberta")[0]["network"] == "LiltForTokenClassification"
    assert found(capsys, "model=roberta")[0]["network"] == "RobertaForTokenClassification"


def test_the_table_says_what_works_and_what_does_not(lilt, capsys):
    assert main(["model", "check", str(lilt)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "model       AutoTagger"
    assert "works       adapters (finetuning=lora):" in lines
    at = lines.index("does not    the page by linear algebra (closed_form):")
    assert "it is for LayoutLMv3" in lines[at + 1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["layoutlmv"], "did you mean 'layoutlm"),
        (["./nowhere"], "there is no such folder"),
        (["roberta", "rounds=3"], "rounds=3: expected settings of the model"),
        (["roberta", "model.layer=3"], "did you mean 'layers'?"),
        (["auto"], "pretrained=None: expected a local folder"),
    ],
)
def test_a_mistake_is_told_with_status_2(arguments, says, capsys):
    assert main(["model", "check", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert says in told.err


def test_a_checkpoint_that_reads_no_words_is_refused(tmp_path, capsys):
    ViTModel(
        ViTConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    ).save_pretrained(tmp_path)
    assert main(["model", "check", str(tmp_path)]) == 2
    assert "holds a model of type 'vit'" in capsys.readouterr().err


def test_the_table_has_the_tokenizer_and_what_is_drawn(lilt, capsys):
    assert main(["model", "check", str(lilt), "model.max_length=64"]) == 0
    lines = capsys.readouterr().out.splitlines()
    size = Subwords.shipped().size
    anew = "drawn anew, as a head for other labels is"
    assert lines[3] == f"weights     the checkpoint's; {anew}: network.classifier"
    assert lines[5:7] == [
        f"tokenizer   BPE, vocabulary of {size:,} tokens",
        "length      64 tokens at most",
    ]


def test_weights_of_no_checkpoint_are_drawn_at_random(capsys):
    facts, _ = found(capsys, "pix2struct")
    assert (facts["pretrained"], facts["max_length"]) == (None, None)
    assert main(["model", "check", "pix2struct"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "weights     drawn at random" in lines
    assert not [line for line in lines if line.startswith("length ")]


@pytest.mark.parametrize("task", ["tags", "answers"])
def test_a_checkpoint_without_its_tokenizer_is_refused(task, lilt, tmp_path, capsys):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).symlink_to(lilt / name)
    assert main(["model", "check", str(tmp_path), f"model.task={task}"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert f"{tmp_path} has no tokenizer that can be used" in told.err
    assert "the folder holds config.json, model.safetensors; expected tokenizer.json" in told.err
