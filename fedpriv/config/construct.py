"""Building objects from nested settings, with every mistake found and named.

A mapping with a `_target_` names a Python callable and gives its arguments; a mapping whose place
has a dataclass for its type needs none. `_partial_: true` leaves the call to whoever knows the
missing arguments. What is wrong is collected with its place, not raised: one run names all of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
import itertools
import json
import math
import re
import traceback
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from fedpriv.runtime.file_names import is_utf8
from fedpriv.runtime.outside import Outside
from fedpriv.runtime.refusals import near

TARGET, PARTIAL = "_target_", "_partial_"
EXPERIMENT = "fedpriv.config.experiment.Experiment"
BROKEN = object()
"""Stands for a value that could not be built; the reason is among the problems."""


def construct(
    target: Callable[..., Any], node: Mapping[str, Any], place: str, problems: list[str]
) -> Any:
    """Calls `target` with the entries of a mapping as arguments.

    Args:
        target: a class or function with annotated parameters.
        node: its arguments by name; nested mappings are built first.
        place: where the mapping stands, such as ``data.partition``; empty at the top.
        problems: what is wrong is appended here, one line each, with its place.

    Returns:
        What `target` returns, or `BROKEN` if anything below `place` is wrong.
    """
    before = len(problems)
    signature = inspect.signature(target).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = {parameter.name: parameter for parameter in signature if parameter.kind in named}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature)
    arguments = {key: value for key, value in node.items() if key not in (TARGET, PARTIAL)}
    for key in [key for key in arguments if key not in parameters and not takes_any]:
        problems.append(_unknown(key, place, _full_name(target), parameters))
        del arguments[key]
    hints = _hints(target)
    values = {
        key: _value(value, hints.get(key, Any), join(place, key), problems)
        for key, value in arguments.items()
    }
    partial = bool(node.get(PARTIAL))
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in values and not partial:
            needs = f"; {_full_name(target)} needs it" if place else ""
            problems.append(f"{join(place, name)}: is missing{needs}")
    if len(problems) > before:
        return BROKEN
    if partial:
        return functools.partial(target, **values)
    try:
        return target(**values)
    except Exception as error:  # whatever a target makes of its arguments is a mistake in them
        expected = isinstance(error, ValueError | TypeError) and str(error)
        text = str(error) if expected else f"{type(error).__name__}: {' '.join(str(error).split())}"
        problems.append(f"{place + ': ' if place else ''}{text}")
        return BROKEN


def _unknown(key: str, place: str, target: str, known: Iterable[str]) -> str:
    taker = f"{target} takes no" if place else "there is no setting"
    return f"{join(place, key)}: {taker} {key!r}{near(key, known)}"


@functools.cache
def known_keys() -> dict[str, dict[str, str | None]]:
    """Returns the settings of fedpriv's classes and functions, which it takes seconds to import.

    They stand in keys.json, which `tests/unit/config/test_keys.py` holds to what they are.

    Returns:
        Dotted path → settings by name, each with the dataclass of its section, if it has one.
    """
    text = Path(__file__).with_name("keys.json").read_text("utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def misspelt(node: Mapping[str, Any], target: str | None, place: str = "") -> Iterator[str]:
    """Yields what `construct` would say of names that are not there, of fedpriv's alone.

    Args:
        node: settings, whose references need not be resolved.
        target: the dotted path of what they are the arguments of, if it is known.
        place: where they stand.
    """
    if target and (why := _missing(target)):
        yield f"{join(place, TARGET)}: {why}"
    known = known_keys().get(target or "")
    for key, value in node.items():
        if known is not None and key not in (*known, TARGET, PARTIAL):
            yield _unknown(key, place, str(target), known)
        elif isinstance(value, Mapping):
            section = (known or {}).get(key)
            inner = str(value[TARGET]) if value.get(TARGET) else section
            yield from misspelt(value, inner, join(place, key))


def _missing(path: str) -> str:
    """Returns why a dotted path of fedpriv's leads nowhere; its module is read, not imported."""
    module, _, name = path.rpartition(".")
    if path in known_keys() or module.partition(".")[0] != "fedpriv":
        return ""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        return f"no module {module!r}{near(path, known_keys())}"
    files = (Path(found.origin), Path(found.origin).with_suffix(".pyi"))
    source = "\n".join(file.read_text("utf-8") for file in files if file.is_file())
    if re.search(rf"\b{re.escape(name)}\b", source):
        return ""
    own = re.findall(r"^(?:class|def) (\w+)", source, re.M)
    return f"{module} has no callable {name!r}{near(name, own) or near(path, known_keys())}"


def _value(value: Any, hint: Any, place: str, problems: list[str]) -> Any:
    """Builds or converts one argument and checks it against the type that is asked for."""
    too_wide = isinstance(value, int) and not -(2**63) <= value < 2**63  # for NumPy and files
    if too_wide or (isinstance(value, float) and not math.isfinite(value)):
        problems.append(f"{place}: got {value!r}, expected a finite number of at most 64 bits")
        return BROKEN
    if isinstance(value, Mapping) and (TARGET in value or _dataclass_of(hint)):
        target: Any = _dataclass_of(hint)
        if TARGET in value:
            try:
                target = import_target(str(value[TARGET]))
            except ImportError as error:
                problems.append(f"{place}.{TARGET}: {error}")
                return BROKEN
        return _fitting(construct(target, value, place, problems), hint, place, problems)
    of_mapping = [typing.get_args(h) for h in _union(hint) if typing.get_origin(h) is Mapping]
    if isinstance(value, Mapping) and of_mapping:
        entries = of_mapping[0][1]
        return {k: _value(v, entries, join(place, k), problems) for k, v in value.items()}
    if hint is inspect.Parameter.empty or hint is Any:
        if isinstance(value, list):  # such as pairs of a weight and a section
            return [_value(v, Any, f"{place}[{i}]", problems) for i, v in enumerate(value)]
        return value
    if isinstance(value, str) and not is_utf8(value):
        problems.append(f"{place}: got {value!r}, which is not UTF-8: rename that file or folder")
        return BROKEN
    if value is None and types.NoneType in _union(hint):
        return None  # before pydantic, which has no schema for the other half of `Protocol | None`
    try:
        # As JSON, so that a list will do for a tuple and an integer for a float, but no more.
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        problems.append(f"{place}: got {value!r}. {why}")
    except Exception:
        # pydantic has no schema for a protocol or an arbitrary class: only a section builds one.
        problems.append(
            f"{place}: got {value!r}, expected a section with a {TARGET} that gives "
            f"a {getattr(hint, '__name__', hint)}"
        )
    return BROKEN


def outside(
    target: Callable[..., Any],
    node: Mapping[str, Any],
    change: Callable[[str, Any, Outside], Any],
    place: str = "",
) -> dict[str, Any]:
    """Returns settings with those changed that reach beyond a run; their types are marked.

    Every `_target_` in them is imported.

    Args:
        target: what they are the arguments of.
        node: the settings.
        change: is called with the place, the value and the mark of each that has not its default.
        place: where they stand.
    """
    defaults = inspect.signature(target).parameters
    hints = _hints(target, marks=True)

    def changed(value: Any, hint: Any, place: str) -> Any:
        inner = value.get(TARGET) if isinstance(value, Mapping) else None
        section: Any = _dataclass_of(hint)
        if inner:
            with contextlib.suppress(ImportError):  # `construct` says what is not there
                section = import_target(str(inner))
        if isinstance(value, Mapping) and section:
            return outside(section, value, change, place)
        if isinstance(value, Mapping):
            return {key: changed(one, hint, join(place, key)) for key, one in value.items()}
        if isinstance(value, list):
            return [changed(one, hint, f"{place}[{i}]") for i, one in enumerate(value)]
        mark = _mark(hint)
        if mark is None or value is None or value in _words(hint):
            return value
        return change(place, value, mark)

    return {
        key: value
        if key in defaults and _same(value, defaults[key].default)
        else changed(value, hints.get(key, Any), join(place, key))
        for key, value in node.items()
    }


def _same(value: Any, default: Any) -> bool:
    return bool(value == (list(default) if isinstance(default, tuple) else default))


def _mark(hint: Any) -> Outside | None:
    """Returns the mark in an annotation, however deep."""
    here = (one for one in getattr(hint, "__metadata__", ()) if isinstance(one, Outside))
    below = map(_mark, typing.get_args(hint))
    return next(filter(None, itertools.chain(here, below)), None)


def _words(hint: Any) -> tuple[Any, ...]:
    """Returns the words that an annotation admits beside others, such as "off"."""
    literal = [typing.get_args(one) for one in _union(hint) if typing.get_origin(one) is Literal]
    return tuple(itertools.chain(*literal))


def import_target(path: str) -> Callable[..., Any]:
    """Returns the callable of a dotted path.

    Raises:
        ImportError: says which part of the path does not exist, and what is near it.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ImportError(f"{path!r} is no dotted path such as 'fedpriv.strategies.fedavg.FedAvg'")
    if why := _missing(path):
        raise ImportError(why)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise ImportError(
                f"no module {error.name!r} (in {path!r}; looked for in the current folder and on "
                "PYTHONPATH)"
            ) from error
        raise ImportError(f"importing {module_name!r} failed: {error}") from error
    except Exception as error:  # of code that is not ours
        (*_, last) = traceback.extract_tb(error.__traceback__)
        raise ImportError(
            f"importing {module_name!r} failed in {last.filename}, line {last.lineno}: "
            f"{type(error).__name__}: {error}"
        ) from error
    found = getattr(module, name, None)
    if not callable(found):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise ImportError(f"{module_name} has no callable {name!r}{near(name, public)}")
    return typing.cast(Callable[..., Any], found)


def _fitting(built: Any, hint: Any, place: str, problems: list[str]) -> Any:
    """Checks that a built object is what its place asks for."""
    kinds = [typing.get_origin(kind) or kind for kind in _union(hint)]
    wanted = [kind for kind in kinds if inspect.isclass(kind) and kind is not Any]
    if built is BROKEN or not wanted:
        return built
    lacking = {
        kind: [name for name in vars(kind) if name[0] != "_" and not hasattr(built, name)]
        for kind in wanted
        if getattr(kind, "_is_protocol", False)
    }
    if any(not lacking[k] if k in lacking else isinstance(built, k) for k in wanted):
        return built
    names = " or ".join(kind.__name__ for kind in wanted)
    lacks = ", ".join(map(repr, lacking.get(wanted[0], ())))
    lacks = f": it has no {lacks}" if lacks else ""
    problems.append(f"{place}: {type(built).__name__} is no {names}{lacks}")
    return BROKEN


@functools.cache
def _hints(target: Callable[..., Any], marks: bool = False) -> dict[str, Any]:
    # A dataclass by itself: its inherited fields are annotated in the words of another module.
    plain = inspect.isclass(target) and not dataclasses.is_dataclass(target)
    try:
        return typing.get_type_hints(target.__init__ if plain else target, include_extras=marks)
    except (NameError, TypeError):
        return {}  # the annotations name what is not imported at run time


def section_type(target: Callable[..., Any], name: str) -> type | None:
    """Returns the dataclass that an argument is annotated with, which needs no `_target_`."""
    return _dataclass_of(_hints(target).get(name))


def _dataclass_of(hint: Any) -> type | None:
    found = [
        kind for kind in _union(hint) if inspect.isclass(kind) and dataclasses.is_dataclass(kind)
    ]
    return found[0] if found else None


def _union(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _full_name(target: Callable[..., Any]) -> str:
    return f"{target.__module__}.{getattr(target, '__qualname__', repr(target))}"


def join(place: str, key: Any) -> str:
    """Returns the place of an entry, such as ``data.partition``."""
    return f"{place}.{key}" if place else str(key)
