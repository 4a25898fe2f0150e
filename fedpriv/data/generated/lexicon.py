"""Word lists and patterns from which the generated invoices are made; see `lexicon.yaml`.

In a pattern, ``#`` stands for a random digit and ``@`` for a random capital letter; everything
else is printed as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedpriv.runtime.run_settings import LOADER


def read_tables(name: str) -> dict[str, Any]:
    """Returns the tables of a YAML file of this folder by name, with tuples for lists."""
    text = Path(__file__).with_name(name).read_text("utf-8")
    tables: dict[str, Any] = _fixed(yaml.load(text, LOADER))  # noqa: S506 - a SafeLoader
    return tables


def _fixed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _fixed(part) for key, part in value.items()}
    return tuple(map(_fixed, value)) if isinstance(value, list) else value


_tables = read_tables("lexicon.yaml")

COMPANY_FIRST: tuple[str, ...] = _tables["COMPANY_FIRST"]
COMPANY_SECOND: tuple[str, ...] = _tables["COMPANY_SECOND"]
COMPANY_FORM: tuple[str, ...] = _tables["COMPANY_FORM"]
MAILBOXES: tuple[str, ...] = _tables["MAILBOXES"]
STREETS: tuple[str, ...] = _tables["STREETS"]
STREET_KINDS: tuple[str, ...] = _tables["STREET_KINDS"]
CITIES: tuple[str, ...] = _tables["CITIES"]
POSTCODES: tuple[str, ...] = _tables["POSTCODES"]
PHONES: tuple[str, ...] = _tables["PHONES"]
TAX_NUMBERS: tuple[str, ...] = _tables["TAX_NUMBERS"]
REGISTRATION_IDS: tuple[str, ...] = _tables["REGISTRATION_IDS"]
INVOICE_NUMBERS: tuple[str, ...] = _tables["INVOICE_NUMBERS"]
MONTHS: tuple[str, ...] = _tables["MONTHS"]
DATES: tuple[str, ...] = _tables["DATES"]
CURRENCIES: tuple[tuple[str, str, str], ...] = _tables["CURRENCIES"]
GIVEN_NAMES: tuple[str, ...] = _tables["GIVEN_NAMES"]
FAMILY_NAMES: tuple[str, ...] = _tables["FAMILY_NAMES"]
TRADES: tuple[tuple[str, ...], ...] = _tables["TRADES"]
TITLES: tuple[str, ...] = _tables["TITLES"]
CAPTIONS: Mapping[str, tuple[str, ...]] = _tables["CAPTIONS"]
NOTES: tuple[str, ...] = _tables["NOTES"]
