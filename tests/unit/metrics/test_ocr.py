"""Reading lines of text, and comparing what was read."""

import shutil
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.generated.slips import Slips
from fedpriv.data.redaction.fields import private_fields
from fedpriv.metrics.ocr import Tesseract, TrOCR, exact_match, fuzz_ratio, normal

installed = pytest.mark.skipif(shutil.which("tesseract") is None, reason="no tesseract here")


def crops_of(documents, keys=None, margin=2):
    crops, texts = [], []
    for document in documents:
        for field in private_fields(document, keys):
            x0, y0, x1, y1 = (int(side) for side in field.box)
            crops.append(document.pixels()[max(0, y0 - margin) : y1 + margin, x0 : x1 + margin])
            texts.append(field.text)
    return crops, texts


@pytest.mark.slow
@installed
@pytest.mark.parametrize("side", [64, 112, 224])
def test_slips_can_be_read(side):
    """What an attack can reach at most; names and dates always, digits nearly."""
    documents = Slips((side, side), providers=12, documents_per_provider=1, seed=3).load().documents
    crops, texts = crops_of(documents)
    right = [exact_match(r, t) for r, t in zip(Tesseract().read(crops), texts, strict=True)]
    assert np.mean(right) >= 0.93


@installed
def test_texts_come_in_the_order_of_the_crops():
    crops, texts = crops_of(Slips(providers=4, documents_per_provider=1).load().documents, ["date"])
    white = np.full((14, 50, 3), 255, np.uint8)
    read = Tesseract().read([white, *crops, white])
    assert read[1:-1] == texts
    assert Tesseract().read(crops[:1]) == texts[:1]
    assert Tesseract().read([]) == []
    assert Tesseract().read(crops[::-1]) == texts[::-1]


@installed
def test_a_crop_of_one_pixel_and_a_grey_one_are_read_as_something():
    read = Tesseract().read([np.zeros((1, 1, 3), np.uint8), np.full((12, 30), 80, np.uint8)])
    assert len(read) == 2
    assert all(isinstance(text, str) for text in read)


def test_without_the_program_it_says_how_to_get_it():
    with pytest.raises(FileNotFoundError, match="no program tesser: apt-get install tesseract-ocr"):
        Tesseract(program="tesser")


@installed
def test_what_the_program_says_is_passed_on():
    with pytest.raises(RuntimeError, match=r"tesseract failed \(1\): .*xyz"):
        Tesseract(language="xyz").read([np.full((9, 9, 3), 255, np.uint8)])


@installed
@pytest.mark.parametrize("settings", [{"enlarge": 0}, {"border": -1}])
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ValueError, match="expected 1 or more, 0 or more"):
        Tesseract(**settings)


@pytest.mark.parametrize(
    "pages", ["one\n\ftwo\n\f\n", "one\n\ftwo\n\f", "one\n\ftwo\n", "one\ftwo"]
)
def test_form_feeds_between_pages_or_after_each(tmp_path, pages):
    program = tmp_path / "program"
    program.write_text(f"#!{sys.executable}\nprint({pages!r}, end='')\n")
    program.chmod(0o755)
    crop = np.full((9, 9, 3), 255, np.uint8)
    assert Tesseract(program=str(program)).read([crop, crop]) == ["one", "two"]
    with pytest.raises(RuntimeError, match=r"returned \d texts for 1 crops"):
        Tesseract(program=str(program)).read([crop])


# TrOCR


def test_trocr_wants_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"expected one with config\.json, weights and"):
        TrOCR(tmp_path / "none")


def save_random_trocr(folder):
    """A model of the published kind, tiny, with random weights."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import (
        PreTrainedTokenizerFast,
        TrOCRConfig,
        TrOCRForCausalLM,
        TrOCRProcessor,
        VisionEncoderDecoderModel,
        ViTConfig,
        ViTImageProcessor,
        ViTModel,
    )

    marks = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    words = {word: k for k, word in enumerate([*marks.values(), "one", "two", "three"])}
    tokenizer = Tokenizer(WordLevel(words, marks["unk_token"]))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks)
    size = {"height": 32, "width": 32}
    TrOCRProcessor(ViTImageProcessor(size=size), fast).save_pretrained(folder)
    encoder = ViTModel(
        ViTConfig(
            image_size=32,
            patch_size=16,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    decoder = TrOCRForCausalLM(
        TrOCRConfig(
            vocab_size=len(words),
            d_model=16,
            decoder_layers=1,
            decoder_attention_heads=2,
            decoder_ffn_dim=16,
            cross_attention_hidden_size=16,
            max_position_embeddings=64,
        )
    )
    model = VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = 0, 1, 2
    model.save_pretrained(folder)


def test_trocr_reads_from_a_folder(tmp_path):
    """Random weights read nonsense; with this seed one word, up to the longest line."""
    import torch

    torch.manual_seed(2)
    save_random_trocr(tmp_path)
    random = np.random.default_rng(0)
    crops = [random.integers(0, 256, (10, 20 + k, 3), dtype=np.uint8) for k in range(3)]
    texts = TrOCR(tmp_path, longest=5).read(crops)
    assert texts == ["three three three three three"] * 3
    assert TrOCR(tmp_path, batch_size=1, longest=5).read(crops) == texts
    assert TrOCR(tmp_path).read([]) == []


def test_pickled_weights_are_not_read(tmp_path):
    save_random_trocr(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        TrOCR(tmp_path).read([np.zeros((9, 9, 3), np.uint8)])


# Comparing


@pytest.mark.parametrize(
    ("read", "right", "same"),
    [
        ("  Vega\n Ltd ", "VEGA LTD", True),
        ("ﬁn", "FIN", True),
        ("12．50", "12.50", True),
        ("Straße", "STRASSE", True),
        ("vegaltd", "vega ltd", False),
        ("12.50", "12,50", False),
        ("", " ", True),
    ],
)
def test_what_counts_as_the_same(read, right, same):
    assert exact_match(read, right) is same


def test_fuzz_ratio_by_hand():
    # One sign deleted, one inserted, of 5 + 5.
    assert fuzz_ratio("12.50", "12.60") == pytest.approx(0.8)
    assert fuzz_ratio("", "") == 1
    assert fuzz_ratio("", "abc") == 0
    assert fuzz_ratio("ABC", " abc ") == 1


@given(st.text(max_size=20))
def test_normal_text_is_normal(text):
    assert normal(normal(text)) == normal(text)
    assert exact_match(f"\t{text} ", text)
    assert fuzz_ratio(text, text) == 1
