"""An adopted stack as a file, and how it differs from the cluster as text and as data."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import yaml

from gpu_tenancy.base.texts import first_names
from gpu_tenancy.model.spec import NAMESPACE
from gpu_tenancy.review.adopting import Adopted
from gpu_tenancy.review.fields import Difference
from gpu_tenancy.review.recorded import lines as cloud_lines

_NAMED: Final = frozenset({"pools", "priorities", "cohorts", "teams"})
_START: Final = """\
# yaml-language-server: $schema=schema.json
# Written by `tenancy cluster adopt`; values that follow from others are left out. Check cluster.provides, because no
# object shows whether NetworkPolicies are enforced, and owners that are unknown.
config:
"""


def written(adopted: Adopted) -> str:
    """The stack file, with a comment that says what each entry comes from."""
    lines = [_START]
    for section, content in adopted.sections.items():
        if section not in _NAMED:
            lines.append(_yaml({f"{NAMESPACE}:{section}": content}, 2))
            continue
        lines.append(f"\n  {NAMESPACE}:{section}:\n")
        for name, entry in content.items():
            note = adopted.notes.get((section, name), "")
            lines += [f"    # {note}\n"] if note else []
            lines.append(_yaml({name: entry}, 4))
    return "".join(lines)


def _yaml(content: dict[str, Any], indent: int) -> str:
    flow = None if any(isinstance(value, dict) for value in content.values()) else False
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=flow, width=110, allow_unicode=True)
    return "".join(f"{' ' * indent}{line}\n" for line in text.splitlines())


def lines(adopted: Adopted) -> Iterator[str]:
    """What is the same, what differs, what is new and what is left alone."""
    for problem in adopted.problems:
        yield f"✗ {problem}"
    if adopted.problems:
        yield "the stack is not valid yet, so it is not compared; correct the file, then preview it"
        return
    yield from cloud_lines(adopted.cloud)
    if blocked := blocking(adopted):
        yield (
            f"Blocked: a deployment would replace {first_names(blocked, 3)}; remove such pools from the stack, add"
            " pools with other names beside them, and move the jobs"
        )
    yield f"same: {_counts(adopted.same)}"
    for text in _grouped(adopted.differences):
        yield f"differs: {text}"
    yield f"new: {_counts(adopted.new)}"
    for text in adopted.imports:
        yield f"imported: {text.replace('=', ' ← ', 1)}"
    for text in adopted.left:
        yield f"not in the stack: {text}"


def blocking(adopted: Adopted) -> list[str]:
    """Resources of the cloud that a deployment would replace; Pulumi refuses, because what is imported is protected."""
    return list(dict.fromkeys(each.resource for each in adopted.cloud if each.effect == "replaced"))


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()) if count) or "nothing"


def _grouped(differences: list[Difference]) -> Iterator[str]:
    """The same difference of several objects in one line."""
    names: dict[tuple[str, str, str, str], list[str]] = {}
    for each in differences:
        names.setdefault((each.kind, each.field, each.live, each.planned), []).append(each.name)
    for (kind, path, live, planned), found in names.items():
        yield f"{kind} {first_names(found, 3)}: {path}: {live or 'not set'} → {planned or 'not in the stack'}"


def data(adopted: Adopted) -> dict[str, Any]:
    """The comparison for programs."""
    return {
        "problems": [str(problem) for problem in adopted.problems],
        "same": {kind: count for kind, count in adopted.same.items() if count},
        "differences": [asdict(each) for each in adopted.differences],
        "new": dict(adopted.new),
        "leftAlone": adopted.left,
        "imports": adopted.imports,
        "cloud": [asdict(each) for each in adopted.cloud],
    }
