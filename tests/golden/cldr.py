"""Writes the names of months and currencies that fedpriv reads: python tests/golden/cldr.py.

They are those of Unicode CLDR as babel has it, in the languages of `locales`.
"""

import json
import re
import unicodedata
from datetime import date

from babel import Locale, localedata
from babel.core import get_global
from babel.dates import format_date, get_month_names
from babel.numbers import get_currency_symbol, get_territory_currencies

from fedpriv.data.values import NAMES, folded, words_of

USUAL = re.findall(r"\w+", "st nd rd th er re eme of the day dias mes ano")
"""Words in dates that CLDR does not have, or only beside the day of the week."""
COLLOQUIAL = re.findall(r"\S+", "円 元 块 원 บาท руб лв дин грн lei tl din rmb rs sfr fr")
"""The same of currencies."""
UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})


def written(text):
    return words_of(folded(text))


def locales():
    """Yields those of languages that are official in a territory, or spoken by a tenth of it."""
    languages = {
        language
        for known in get_global("territory_languages").values()
        for language, about in known.items()
        if about["official_status"] or about["population_percent"] >= 10
    }
    for name in localedata.locale_identifiers():
        if name.split("_")[0] in languages:
            yield Locale.parse(name)


def months_and_fillers(locale):
    """Returns the names of a month as pairs, and the words that stand in a date of any month."""
    names = [
        (month, written(spelled))
        for width in ("wide", "abbreviated")
        for context in ("format", "stand-alone")
        for month, name in get_month_names(width, context, locale).items()
        if not re.search(r"\d", name)
        for spelled in (name, name.translate(UMLAUTS))
    ]
    fillers = set()
    for width in ("medium", "long"):
        days = {month: date(1999, month, 28) for month in range(1, 13)}
        texts = {month: written(format_date(day, width, locale)) for month, day in days.items()}
        common = set.intersection(*map(set, texts.values()))
        names += [(m, tuple(w for w in words if w not in common)) for m, words in texts.items()]
        fillers |= common
    # Two Latin letters are too few to tell a month by, but for August in Catalan.
    least = 1 if locale.language == "ca" else 2
    joined = ((month, " ".join(words)) for month, words in names)
    return {(m, name) for m, name in joined if len(name) > least * name.isascii()}, fillers


def currencies(locale):
    """Yields codes and symbols; one letter is too little to tell a currency by."""
    for code in get_territory_currencies(locale.territory) if locale.territory else ():
        for name in (code, get_currency_symbol(code, locale)):
            symbol = "".join(written(name))
            if len(symbol) > 1 and not any(unicodedata.category(s) == "Sc" for s in symbol):
                yield symbol


def tables():
    months, fillers, symbols = [set() for _ in range(12)], {*USUAL}, {*COLLOQUIAL}
    for locale in locales():
        names, between = months_and_fillers(locale)
        for month, name in names:
            months[month - 1].add(name)
        fillers |= between
        symbols.update(currencies(locale))
    return {
        "months": [sorted(names - fillers) for names in months],
        "fillers": sorted(fillers),
        "currencies": sorted(symbols),
    }


if __name__ == "__main__":
    text = json.dumps(tables(), ensure_ascii=False).replace("], ", "],\n").replace("[[", "[\n[")
    NAMES.write_text(f"{text}\n", encoding="utf-8")
