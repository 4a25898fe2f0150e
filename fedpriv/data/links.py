"""Links between the fields of a form: as files state them, and when words are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedpriv.data.document import Document, Entity
from fedpriv.data.reading import shown

Link = tuple[int, int]


def stated_links(item: Any) -> list[Link]:
    """Returns the pairs of identifiers in the list "linking" of a form item; none without a list.

    Raises:
        ValueError: if "linking" is not such a list.
    """
    pairs = item.get("linking", [])
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and [type(end) for end in pair] == [int, int] for pair in pairs
    ):
        raise ValueError(f'expected pairs of whole numbers in "linking", found {shown(pairs)}')
    return [(first, second) for first, second in pairs]


def links_between(pairs: Iterable[Link], identifiers: Sequence[Any]) -> tuple[Link, ...]:
    """Returns the links between entities, each once, in the pairs' order.

    Pairs with an unknown identifier are left out, and so are links of an entity with itself.

    Args:
        pairs: of identifiers; each may occur at both of its items.
        identifiers: of the entities, in their order.

    Raises:
        ValueError: if a pair names an identifier that two entities share.
    """
    named = dict.fromkeys(pairs)
    for identifier in {one for pair in named for one in pair}:
        if identifiers.count(identifier) > 1:
            raise ValueError(f"two fields have the id {identifier}, which a link names")
    known = [pair for pair in named if all(one in identifiers for one in pair)]
    links = [(identifiers.index(first), identifiers.index(second)) for first, second in known]
    return tuple(link for link in links if link[0] != link[1])


def kept_entities(
    document: Document, moved: Mapping[int, int]
) -> tuple[tuple[Entity, ...], tuple[Link, ...]]:
    """Returns the entities that keep all their words, and the links among them.

    Args:
        document: before words are left out.
        moved: old → new positions of the words that stay.
    """
    kept = [at for at, e in enumerate(document.entities) if all(word in moved for word in e.words)]
    stay = [document.entities[at] for at in kept]
    entities = tuple(Entity(e.label, tuple(moved[word] for word in e.words)) for e in stay)
    places = {old: new for new, old in enumerate(kept)}
    links = [link for link in document.links if all(end in places for end in link)]
    return entities, tuple((places[first], places[second]) for first, second in links)
