"""Phrasings of the questions on invoices, receipts and identities, by key; see `questions.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from fedpriv.data.generated.lexicon import read_tables

_tables = read_tables("questions.yaml")

QUESTION_TEMPLATES: Mapping[str, tuple[str, ...]] = _tables["QUESTION_TEMPLATES"]
RECEIPT_QUESTIONS: Mapping[str, tuple[str, ...]] = _tables["RECEIPT_QUESTIONS"]
IDENTITY_QUESTIONS: Mapping[str, tuple[str, ...]] = _tables["IDENTITY_QUESTIONS"]
