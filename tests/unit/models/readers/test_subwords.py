"""Words to tokens and tokens to windows: nothing is lost, nothing comes twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, PreTrainedTokenizerFast, RobertaConfig, T5Config

from fedpriv.models.readers.subwords import (
    CLS,
    MASK,
    PAD,
    SEP,
    UNKNOWN,
    Subwords,
    train_tokenizer,
    windows,
)

plain_text = st.text(st.characters(codec="utf-8", exclude_characters="<"), min_size=1)
pieces_of_words = st.lists(st.lists(st.integers(5, 999), min_size=1, max_size=6), max_size=20)


@pytest.fixture(scope="module")
def shipped():
    return Subwords.shipped()


# Windows


@given(pieces_of_words, st.integers(1, 30))
def test_windows_hold_every_token_once_and_in_order(pieces, length):
    cut = windows(pieces, length)
    assert [token for window in cut for token in window.ids] == [t for p in pieces for t in p]
    assert len(cut) >= 1
    assert all(len(window.ids) <= length for window in cut)
    assert all(len(window.ids) == length for window in cut[:-1])


@given(pieces_of_words, st.integers(1, 30))
def test_every_token_knows_its_word_and_every_word_has_one_first_token(pieces, length):
    cut = windows(pieces, length)
    words = [word for window in cut for word in window.words]
    first = [flag for window in cut for flag in window.first]
    assert words == [number for number, tokens in enumerate(pieces) for _ in tokens]
    opening = [word for word, flag in zip(words, first, strict=True) if flag]
    assert opening == list(range(len(pieces)))
    assert all(len(w.ids) == len(w.words) == len(w.first) for w in cut)


def test_a_word_may_be_cut_by_the_end_of_a_window():
    one, two = windows([[10, 11], [20, 21, 22]], 3)
    assert (one.ids, one.words, one.first) == ([10, 11, 20], [0, 0, 1], [True, False, True])
    assert (two.ids, two.words, two.first) == ([21, 22], [1, 1], [False, False])


def test_a_document_without_words_is_one_empty_window():
    (window,) = windows([], 5)
    assert (window.ids, window.words, window.first) == ([], [], [])


# The shipped tokenizer


@given(st.lists(st.text(max_size=12), max_size=5))
def test_any_text_gives_every_word_at_least_one_token(words):
    shipped = Subwords.shipped()
    pieces = shipped.pieces(words)
    assert len(pieces) == len(words)
    assert all(pieces)
    assert all(0 <= token < shipped.size for tokens in pieces for token in tokens)


@given(plain_text)
def test_no_text_is_unknown(word):
    shipped = Subwords.shipped()
    assert shipped.tokenizer.token_to_id(UNKNOWN) not in shipped.pieces([word])[0]


@given(st.lists(plain_text, min_size=1, max_size=5))
def test_the_tokens_of_a_word_spell_it_in_lower_case(words):
    shipped = Subwords.shipped()
    for word, tokens in zip(words, shipped.pieces(words), strict=True):
        spelled = shipped.tokenizer.decode(tokens, skip_special_tokens=False)
        # A space stands before the word, and before every digit.
        assert spelled.replace(" ", "") == word.lower().replace(" ", "")


def test_a_words_tokens_do_not_depend_on_its_neighbours(shipped):
    together = shipped.pieces(["Total", "1,234.50", "EUR", "straße"])
    assert together == [shipped.pieces([w])[0] for w in ("Total", "1,234.50", "EUR", "straße")]


@pytest.mark.parametrize(
    ("word", "tokens"),
    [
        ("2024-04-17", ["Ġ20", "24", "-", "04", "-", "17"]),
        ("3,682.41", ["Ġ3", ",", "68", "2", ".", "41"]),
    ],
)
def test_numbers_are_cut_into_pairs_of_digits(shipped, word, tokens):
    assert [shipped.tokenizer.id_to_token(number) for number in shipped.pieces([word])[0]] == tokens


@pytest.mark.parametrize("text", ["vega builders aps", "€3,682.41", "pay@vega-builders.test", ""])
def test_tokens_turn_back_into_text(shipped, text):
    tokens = [token for word in shipped.pieces(text.split()) for token in word]
    assert shipped.text([shipped.cls, *tokens, shipped.sep, shipped.pad]) == text


def test_common_words_of_invoices_are_one_token(shipped):
    assert [len(tokens) for tokens in shipped.pieces(["invoice", "total", "date"])] == [1, 1, 1]


def test_upper_and_lower_case_are_the_same_unless_asked_to_differ(shipped):
    assert shipped.pieces(["TOTAL"]) == shipped.pieces(["total"])


def test_the_special_tokens_are_different_and_known(shipped):
    numbers = [shipped.tokenizer.token_to_id(token) for token in (CLS, SEP, PAD)]
    assert [shipped.cls, shipped.sep, shipped.pad] == numbers
    assert len({*numbers, None}) == 4
    assert max(numbers) < shipped.size


@pytest.mark.parametrize("word", [CLS, SEP, PAD, MASK, f"a{PAD}b"])
def test_text_that_looks_like_a_special_token_is_text(shipped, word):
    special = {shipped.tokenizer.token_to_id(token) for token in (CLS, SEP, PAD, MASK)}
    assert not special & set(shipped.pieces([word])[0])


# Others


def test_a_word_that_leaves_no_token_gets_the_separator():
    tokenizer = Tokenizer(WordLevel({"a": 0, "</s>": 1}))
    tokenizer.pre_tokenizer = Whitespace()
    assert Subwords(tokenizer, cls=0, sep=1, pad=0).pieces(["a", "\u2003", ""]) == [[0], [1], [1]]


def test_case_is_kept_where_lowercase_is_off():
    tokenizer = Tokenizer(WordLevel({"a": 0, "A": 1}))
    tokenizer.pre_tokenizer = Whitespace()
    assert Subwords(tokenizer, cls=0, sep=1, pad=0).pieces(["A"]) == [[0]]
    assert Subwords(tokenizer, cls=0, sep=1, pad=0, lowercase=False).pieces(["A"]) == [[1]]


def test_a_saved_tokenizer_of_transformers_is_read_with_its_special_tokens(tmp_path, shipped):
    PreTrainedTokenizerFast(
        tokenizer_object=shipped.tokenizer, cls_token=CLS, sep_token=SEP, pad_token=PAD
    ).save_pretrained(tmp_path)
    loaded = Subwords.from_pretrained(tmp_path)
    assert (loaded.cls, loaded.sep, loaded.pad) == (shipped.cls, shipped.sep, shipped.pad)
    assert loaded.size == shipped.size
    words = ["Rechnung", "№", "12.50", "日本"]
    assert loaded.pieces(words) == shipped.pieces(words)


def test_training_again_gives_the_same_tokenizer():
    texts = [" total 12.50 eur", " total due 99", " invoice date 2024"] * 20
    one, two = (train_tokenizer(texts, 300) for _ in range(2))
    assert one.to_str() == two.to_str()
    assert one.get_vocab_size() <= 300
    assert [one.token_to_id(token) for token in (CLS, PAD, SEP, UNKNOWN, MASK)] == [0, 1, 2, 3, 4]
    assert one.encode(" total", add_special_tokens=False).tokens == ["Ġtotal"]


# Tokenizers that cannot be used


@pytest.mark.parametrize("config", [BertConfig, RobertaConfig, T5Config])
def test_a_folder_without_a_tokenizer_is_refused_with_what_it_holds(config, tmp_path):
    config().save_pretrained(tmp_path)
    message = (
        r"it can read 0 of the 9 words .*; the folder holds config\.json; expected tokenizer\.j"
    )
    with pytest.raises(ValueError, match=message) as refused:
        Subwords.from_pretrained(tmp_path)
    assert str(refused.value).startswith(f"{tmp_path} has no tokenizer that can be used: of ")


def save_words(folder, *words):
    """A tokenizer that knows these words alone."""
    marks = {"unk_token": UNKNOWN, "sep_token": SEP, "cls_token": CLS, "pad_token": PAD}
    known = {word: number for number, word in enumerate([*marks.values(), *words])}
    tokenizer = Tokenizer(WordLevel(known, UNKNOWN))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(folder)


def test_a_tokenizer_that_knows_next_to_no_word_is_refused(tmp_path):
    save_words(tmp_path, "total", "date")
    with pytest.raises(ValueError, match="of 6 tokens, it can read 2 of the 9 words total, date"):
        Subwords.from_pretrained(tmp_path)


def test_a_tokenizer_of_another_script_is_told_by_its_numbers(tmp_path):
    save_words(tmp_path, "итого", "7", ".", "42", "2018", "1")
    assert Subwords.from_pretrained(tmp_path).size == 10
