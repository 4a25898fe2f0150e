"""Helps autodoc to read the docstrings: Google's style, with Markdown's backticks."""

import contextlib
import dataclasses
import inspect
import operator
import pkgutil
import re
import sys
from typing import Any

from docutils.nodes import Element, TextElement
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import fedpriv
from fedpriv.config.reference import argument_meanings

API = "reference/api/"
BAR = re.compile(r"(`+.*?`+)|\|")


def mend(app: Sphinx, what: str, name: str, obj: Any, options: object, lines: list[str]) -> None:
    """Changes a docstring where reStructuredText means something else than it does.

    A bar is a bar: `|K|` is no substitution, and `n.` begins no list. The text
    below a constant or of a property has no type before its first colon. Arguments of base classes
    are described too.
    """
    literal = False
    for number, line in enumerate(lines):
        indented = line.startswith(" ") or not line.strip()
        literal = indented if literal else lines[number - 1].endswith("::") and number > 0
        if not literal and not line.lstrip().startswith(">>>"):
            line = re.sub(r"^(\s*\w+: \w)\.$", r"\1\.", line)
            lines[number] = BAR.sub(lambda found: found[1] or r"\|", line)
    if dataclasses.is_dataclass(obj) and "Args:" not in lines and "Attributes:" in lines:
        lines[lines.index("Attributes:")] = "Args:"  # or Sphinx would list them twice
    if what == "class" and "Args:" in lines:
        own = argument_meanings(type("Own", (), {"__doc__": "\n".join(lines)}))
        known = argument_meanings(obj)
        lines[lines.index("Args:") + 1 : lines.index("Args:") + 1] = [
            f"    {argument}: {meaning}"
            for argument, meaning in known.items()
            if argument not in own and argument in inspect.signature(obj).parameters
        ]
    if what in ("attribute", "data", "property"):
        lines.insert(0, r"\ ")


def resolve(
    app: Sphinx, env: BuildEnvironment, node: Element, content: TextElement
) -> Element | None:
    """Finds what an annotation names by another path, or where no link to it can be known.

    A type of a library without an inventory, or one of ours without an entry, stays plain text if
    it exists; what does not exist is a warning. In pages that people write only exported names,
    such as `fedpriv.FedAvg`, are found.
    """
    target = node.get("reftarget", "")
    if target.startswith("fedpriv.") and target.removeprefix("fedpriv.") in fedpriv.__all__:
        obj = getattr(fedpriv, target.removeprefix("fedpriv."))
        target = f"{obj.__module__}.{obj.__qualname__}"
        domain = env.get_domain("py")
        return domain.resolve_xref(
            env, node["refdoc"], app.builder, node["reftype"], target, node, content
        )
    if not str(node.get("refdoc", "")).startswith(API):
        return None
    try:
        pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError):
        for name, module in list(sys.modules.items()):
            with contextlib.suppress(AttributeError):
                if name.startswith("fedpriv."):
                    operator.attrgetter(target)(module)  # such as nn.Module
                    return content
        return None
    return content


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects the functions above; napoleon reads what `mend` leaves."""
    app.setup_extension("sphinx.ext.autodoc")
    app.setup_extension("sphinx.ext.napoleon")
    app.connect("autodoc-process-docstring", mend, priority=400)
    app.connect("missing-reference", resolve, priority=900)  # intersphinx comes first
    return {"parallel_read_safe": True, "parallel_write_safe": True}
