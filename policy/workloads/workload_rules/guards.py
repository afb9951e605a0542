"""Rules for the guards of GPU tenancy, and for the configuration of Kueue, which counts the GPUs that they bound.

`guards.yaml` has the normal form of each guard, which `make facts` generates from the program. Policies and bindings
are compared whole. Where a stack has values, any literals fit, of which exempt accounts, excluded namespaces and
lists that must not become shorter are read. Not seen: other values, such as priorities, grace periods and registries;
guards that a program deletes; and a Namespace that lacks both the label and the annotations of the guards.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from rule_engine import Part, Resource, Subject, Unknown, UnknownValueError, View, read_table, rule
from rule_engine.reading import Plain
from workload_rules.objects import name, objects
from workload_rules.pods import Tenants

FILE: Final = Path(__file__).with_name("guards.yaml")
_FACTS: Final[Mapping[str, Any]] = read_table(FILE)
_KINDS: Final = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
GUARDS: Final = objects(
    "guards of GPU tenancy, their bindings, and Namespaces",
    *(f"admissionregistration.k8s.io:{kind}{suffix}" for kind in _KINDS for suffix in ("", "Binding")),
    "core:Namespace",
)
_STRING: Final = r"'((?:[^'\\\n\0]|\\[\\'])*)'"  # other escapes could hide a name
_ATOM: Final = rf"(?:{_STRING}|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|true|false)"
_FLAT: Final = rf"(?:{_ATOM}|[\[{{](?:\s*{_ATOM}(?:\s*[,:]\s*{_ATOM})*)?\s*[\]}}])"
LITERAL: Final = re.compile(rf"{_ATOM}|[\[{{](?:\s*{_FLAT}(?:\s*[,:]\s*{_FLAT})*)?\s*[\]}}]")
"""A literal of CEL: a string, a number, a boolean, or a list or map of them, or of such lists and maps."""
_ACCOUNT: Final = re.compile(r"system:(?:(?:un)?authenticated|serviceaccounts?)(?::([^:]+).*)?")
_READ: Final = (_FACTS["annotations"], "kueue.x-k8s.io/", "scheduling.volcano.sh/queue-name")
"""Beginnings of annotations and labels of a Namespace that guards and Kueue read."""
_DEPLOY: Final = "deploy the stack that creates the guards, with the pack of the same release"


class _GuardTenants(Tenants):
    def is_bound(self, namespace: str) -> bool:
        """Whether guards must bind a namespace; they never bind those that the program always excludes."""
        return self.tenant(namespace) and namespace not in _FACTS["spared"]


_WEAKER: Final = {"deny": (), "warn": ("Warn",), "audit": ("Warn", "Audit")}


class _GuardSettings(_GuardTenants):
    action: Literal["deny", "warn", "audit"] = "deny"
    """The least that guards must do with an object that violates them: `guards.action` of your stacks."""


@rule("guards-not-weakened", GUARDS)
def guards_not_weakened(guard: Resource, settings: _GuardSettings) -> Iterator[str]:
    """Guards must be as this release renders them, and nobody else may change what they read of a Namespace."""
    if guard.kind == "Namespace":
        yield from _of_namespace(guard, settings)
    elif (forms := _FACTS["guards"].get(name(guard))) is not None:
        form = forms["binding" if guard.kind.endswith("Binding") else "policy"]
        spec = guard.props.entries("spec")
        actions = {"validationActions"} if guard.kind == "ValidatingAdmissionPolicyBinding" else set[str]()
        for field in sorted({*spec} if guard.patch else {*form, *actions, *spec}):
            value = spec.get(field, View(None))
            if field in actions:
                if {"Deny", *_WEAKER[settings.action]}.isdisjoint(value.texts()):
                    done = ", ".join(value.texts()) or "empty"
                    yield f"{field} is {done}, so that the guard rejects nothing; set {settings.action.capitalize()}"
            elif field in form and value.has():
                yield from _compared(field, value, form[field], settings)
            else:
                yield f"{field} is {'not a field of the guard' if value.has() else 'missing'}; {_DEPLOY}"


def _of_namespace(space: Resource, settings: Tenants) -> Iterator[str]:
    if not settings.tenant(name(space)):
        return
    key, value = _FACTS["label"]
    fields = [space.props.as_part().entries("metadata", field) for field in ("annotations", "labels")]
    read = [one for entries in fields for one in entries if one.startswith(_READ)]
    for one in read if space.patch else ():
        yield f"sets {one}, which guards and Kueue read; remove it, and change the team in the stack"
    label = fields[1].get(key, View(value if space.patch else "")).text()
    if label != value and (space.patch or any(one.startswith(_READ[0]) for one in read)):
        yield f"has {f'label {key}: {label}' if label else f'no label {key}'}, so that no guard applies; set {value}"


def _compared(field: str, value: View, form: list[Any], settings: _GuardTenants) -> Iterator[str]:
    """Compares a field with its form: lengths of text, between them the values of a stack, and a digest of the text."""
    text, parts, holes, start = "\0".join(normal_form(value.value, value.path)), list[str](), list[str](), 0
    for piece in form[:-1]:
        literal = None if isinstance(piece, int) else LITERAL.match(text, start)
        end = start + piece if isinstance(piece, int) else literal.end() if literal else start
        (parts if isinstance(piece, int) else holes).append(text[start:end])
        start = end
    if sha256("\1".join((*parts, text[start:])).encode()).hexdigest()[:32] != form[-1]:
        yield f"{field} differs from the guard's; {_DEPLOY}"
        return
    for piece, hole in zip(form[1:-1:2], holes, strict=True):
        strings = [re.sub(r"\\(.)", r"\1", one) for one in re.findall(_STRING, hole)]
        least = _FACTS["least"].get(piece, ()) if isinstance(piece, str) else piece
        if lacking := [one for one in least if one not in strings]:
            yield f"{field} lacks {', '.join(lacking)}; {_DEPLOY}"
        for one in strings if piece in ("caches", "exempt", "makers", "spared", "trainer") else ():
            account = re.fullmatch(r"(.+)", one) if piece == "spared" else _ACCOUNT.fullmatch(one)
            if account and (account[1] is None or settings.is_bound(account[1])):
                yield f"{field} exempts {one}, which tenants are in; remove it, or list its namespace under `platform`"


def normal_form(value: Plain, path: tuple[str, ...] = (), below: str = "") -> Iterator[str]:
    """Lines of each value with its path; a list of strings is a literal of CEL."""
    if isinstance(value, Unknown):
        raise UnknownValueError(path, value.why)
    if isinstance(value, dict) and value:
        for key, item in sorted(value.items()):
            yield from normal_form(item, (*path, key), f"{below}.{key}")
    elif isinstance(value, list) and not all(isinstance(item, str) for item in value):
        for index, item in enumerate(value):
            yield from normal_form(item, (*path, str(index)), f"{below}.{index}")
    elif isinstance(value, list):
        quoted = ("'" + str(item).replace("\\", "\\\\").replace("'", "\\'") + "'" for item in value)
        yield f"{below}=[{', '.join(quoted)}]"
    else:
        yield f"{below}={value}".replace("\0", "?")


_IN_CHART: Final = ("values", "managerConfig", "controllerManagerConfigYaml")
_PLACES: Final = {"ConfigMap": ("data", "controller_manager_config.yaml"), "Chart": _IN_CHART, "Release": _IN_CHART}
"""Where Kueue's configuration is, as YAML in a string."""


def _configurations(resource: Resource) -> Iterator[Part]:
    props = resource.props.as_part()
    of_kueue = "kueue" in props.text("chart") or name(resource) == "kueue-manager-config"
    if of_kueue and props.has(*_PLACES[resource.kind]):
        yield Part(resource, props.at(*_PLACES[resource.kind]))


_CONFIGURATIONS: Final = Subject(
    "configurations of Kueue: its ConfigMap, and values of its chart",
    lambda resource: resource.group in {"core", "helm.sh"} and resource.kind in _PLACES,
    _configurations,
)


@rule("kueue-manages-all", _CONFIGURATIONS)
def kueue_manages_all(part: Part, settings: _GuardTenants) -> Iterator[str]:
    """Kueue must manage pods and jobs of tenants also without a queue."""
    try:
        config = View(yaml.safe_load(part.view.text()))
    except yaml.YAMLError:
        raise UnknownValueError(part.view.path, "is not valid YAML") from None
    if not config.flag("manageJobsWithoutQueueName"):
        yield "manageJobsWithoutQueueName is false, so that jobs without a queue use GPUs unseen; set it to true"
    if lacking := [one for one in _FACTS["frameworks"] if one not in config.texts("integrations", "frameworks")]:
        yield f"integrations.frameworks lacks {', '.join(lacking)}, so that no queue counts them; add them"
    field = "managedJobsNamespaceSelector"
    if config.has(field):
        yield from _compared(field, config.at(field), _FACTS["selector"], settings)
