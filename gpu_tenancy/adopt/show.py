"""Output of an adopted stack: file, comparison as text, and data."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import yaml

from gpu_tenancy.adopt.adopting import Adopted
from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.model.spec import NAMESPACE

_NAMED: Final = frozenset({"pools", "priorities", "cohorts", "teams"})
_LINE: Final = 80  # characters of a list on one line
_START: Final = """\
# yaml-language-server: $schema=schema.json
# Written by `tenancy cluster adopt`; values that follow from others are left out. Check cluster.provides, because no
# object shows whether NetworkPolicies are enforced, and owners that are unknown.
config:
"""


def written(adopted: Adopted) -> str:
    """The stack file, with the source of each entry as a comment; the long `cluster.adopt` is at its end."""
    lines = [_START]
    for section, content in sorted(adopted.sections.items(), key=lambda item: item[0] == "cluster"):
        if section not in _NAMED:
            lines.append(("\n" if section == "cluster" else "") + _yaml({f"{NAMESPACE}:{section}": content}, 2))
            continue
        lines.append(f"\n  {NAMESPACE}:{section}:\n")
        for name, entry in content.items():
            note = adopted.notes.get((section, name), "")
            lines += [f"    # {note}\n"] if note else []
            lines.append(_yaml({name: entry}, 4))
    return "".join(lines)


class _Dumper(yaml.SafeDumper):
    """Writes long lists with one item a line."""


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    long = sum(map(len, map(str, items))) > _LINE
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=False if long else None)


_Dumper.add_representer(list, _represent_list)


def _yaml(content: dict[str, Any], indent: int) -> str:
    flow = None if any(isinstance(value, dict) for value in content.values()) else False
    text = yaml.dump(content, Dumper=_Dumper, sort_keys=False, default_flow_style=flow, width=110, allow_unicode=True)
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


def lines(adopted: Adopted) -> Iterator[str]:
    """Objects that are the same, differ, are new, or are left alone."""
    yield from (f"✗ {problem}" for problem in adopted.problems)
    if adopted.problems:
        yield "the stack is not valid yet, so it is not compared; correct the file, then preview it"
        yield from _not_shown(adopted)
        return
    if adopted.incomplete:
        yield (
            f"✗ incomplete: you may not read {', '.join(adopted.incomplete)} of the whole cluster. Teams are missing in"
            " the stack, and their GPUs count as free; delete the file, and write it with the kubeconfig of an auditor"
        )
    yield f"same: {_counts(adopted.same)}"
    # The same difference of several objects, or of several fields, in one line.
    names = grouped(((each.kind, each.field, each.live, each.planned), each.name) for each in adopted.differences)
    paths = grouped(((kind, tuple(found), live, planned), path) for (kind, path, live, planned), found in names.items())
    for (kind, found, live, planned), several in paths.items():
        change = f"{live or 'not set'} → {planned or 'not in the stack'}"
        yield f"differs: {kind} {first_names(found, 3)}: {', '.join(several)}: {change}"
    yield f"new: {_counts(adopted.new)}"
    yield from _not_shown(adopted)


def _not_shown(adopted: Adopted) -> Iterator[str]:
    yield from (f"assumed: {text}" for text in adopted.assumed)
    yield from (f"not in the stack: {text}" for text in adopted.left)


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()) if count) or "nothing"


def data(adopted: Adopted) -> dict[str, Any]:
    """The comparison for JSON."""
    return {
        "problems": [str(problem) for problem in adopted.problems],
        "incomplete": list(adopted.incomplete),
        "same": {kind: count for kind, count in adopted.same.items() if count},
        "differences": [asdict(each) for each in adopted.differences],
        "new": dict(adopted.new),
        "assumed": adopted.assumed,
        "leftAlone": adopted.left,
    }
