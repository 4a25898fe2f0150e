"""Puts a private text in each place of an object that holds a text, one at a time."""

import contextlib
import dataclasses
from collections.abc import Mapping

SOMEBODY = "Geheimrat Zwölfengel"


def changed(value, private=SOMEBODY):
    """Yields where a text stands, dotted, and the object with the private text in its place.

    Keys of mappings are texts too: `.`, and the key.
    """
    if isinstance(value, str):
        yield "", private
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            for place, new in changed(getattr(value, field.name), private):
                one = dataclasses.replace(value, **{field.name: new})
                yield f"{field.name} {place}".strip(), one
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield f".{key}", {private if one == key else one: v for one, v in value.items()}
            for place, new in changed(inner, private):
                yield f"{key} {place}".strip(), {**value, key: new}
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            for place, new in changed(inner, private):
                yield f"{at} {place}".strip(), type(value)([*value[:at], new, *value[at + 1 :]])


def places_that_show(value, kept, private=SOMEBODY):
    """Returns the places whose text is found in what is kept of the object, as text."""
    places, shown = list(changed(value, private)), []
    assert len(places) > 20, "so few texts prove nothing"
    for place, new in places:
        with contextlib.suppress(KeyError):  # of a key that no program would have written
            if private.lower() in kept(new).lower():
                shown.append(place)
    return shown
