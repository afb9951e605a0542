"""What no rule of this pack evaluates: other clusters, and other resources that create machines with GPUs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from cloud_rules import aws, aws_attributes
from cloud_rules.aws_nodes import TEMPLATES, LaunchTemplate
from cloud_rules.aws_templates import NO_MACHINE, machines_of, template_named
from cloud_rules.machines import Machines
from cloud_rules.pools import Machine
from cloud_rules.subjects import EVALUATED
from cloud_rules.tokens import ASGS, GKE_CLUSTER, token
from rule_engine import ADVICE, AnyRule, Resource, Rule, Severity, Stack, Subject, Unknown, UnknownValueError, View

_SAGEMAKER: Final = "ml."
"""Prefix of EC2's machine types in SageMaker."""
_GPU_NAMES: Final = ("nvidia",)
_REQUIREMENTS: Final = "instancerequirements"
_NAMING: Final = ("machines", "families", "others", "gpus", "templates")
"""Kinds of properties that name machines or GPUs."""


@cache
def table() -> Mapping[str, Any]:
    """The content of coverage.yaml: blocks of facts, each with source and date."""
    return yaml.safe_load(Path(__file__).with_name("coverage.yaml").read_bytes())


@dataclass(frozen=True, slots=True)
class Properties:
    """Names of properties that name machines, as patterns in lower case; see coverage.yaml."""

    machines: tuple[str, ...]
    families: tuple[str, ...]
    others: tuple[str, ...]
    gpus: tuple[str, ...]
    templates: tuple[str, ...]
    named: tuple[str, ...]
    ignored: tuple[str, ...]


@cache
def _properties() -> Properties:
    names = table()["properties"]
    return Properties(**{key: tuple(name.lower() for name in names[key]) for key in Properties.__annotations__})


@cache
def _patterns(block: str) -> tuple[str, ...]:
    return tuple(pattern for row in table()[block] for pattern in row["types"])


def not_evaluated() -> Iterator[str]:
    """What no rule evaluates, as items of a list for documentation."""
    facts = table()
    for row in facts["clusters"]:
        yield f"{row['title']}: always reported ({_types(row)})"
    for row in facts["resources"]:
        yield f"{row['title']}: reported if they can have GPUs ({_types(row)})"
    names = dict.fromkeys(name for kind in _NAMING for name in facts["properties"][kind])
    yield f"Properties of these that are read: {', '.join(f'`{name}`' for name in names)}"
    yield "GKE Autopilot: always reported, because it creates GPU nodes for the pods that request them"


def _types(row: dict[str, Any]) -> str:
    return ", ".join(f"`{pattern}`" for pattern in row["types"])


@dataclass(frozen=True, slots=True, eq=False)
class Unevaluated:
    """A resource that no rule evaluates, and that can create machines."""

    resource: Resource

    @property
    def place(self) -> str:
        """The resource."""
        return self.resource.place

    def gpu_machines(self, known: Machines, stack: Stack) -> list[str]:
        """Names of machines with GPUs, and of GPUs, that its properties or launch templates name.

        Raises:
            UnknownValueError: a machine is unknown.
        """
        named = [name for key, view in _values(self.resource.props) for name in _named(key, view, known)]
        templates = [machine.name for machine in self._template_machines(stack) if machine.gpus(known) != 0]
        return list(dict.fromkeys([*named, *templates]))

    def _template_machines(self, stack: Stack) -> list[Machine]:
        """The machines of the launch templates that it refers to, by dependency, id or name."""
        references = [view for key, view in _values(self.resource.props) if key in _properties().templates]
        references = [view for view in references if view.value and isinstance(view.value, (dict, Unknown))]
        templates = list(self._needed_templates(stack)) if references else []
        if not templates and not self._names_a_machine():
            templates = [_template_of(reference, stack) for reference in references]
        return [machine for template in templates for machine in machines_of(template)]

    def _needed_templates(self, stack: Stack) -> Iterator[LaunchTemplate]:
        needed = {urn for urns in self.resource.needs.values() for urn in urns}
        for template, urn in stack.known_values(TEMPLATES, lambda template: template.resource.urn):
            if urn in needed:
                yield template

    def _names_a_machine(self) -> bool:
        names = (*_properties().machines, _REQUIREMENTS)
        return any(key in names and view.value is not None for key, view in _values(self.resource.props))


def _template_of(reference: View, stack: Stack) -> LaunchTemplate:
    template = template_named(reference, stack)
    if template is None:
        raise UnknownValueError(reference.path, NO_MACHINE)
    return template


def _values(view: View) -> Iterator[tuple[str, View]]:
    """All values below, each with the name of its property in lower case, in the order of paths.

    Unknown values are among them. Tags and labels are not, nor the parts of blocks that name GPUs as a whole.
    """
    properties = _properties()
    pending = [("", view)]
    while pending:
        key, part = pending.pop()
        if key:
            yield key, part
        if key in {_REQUIREMENTS, *properties.gpus, *properties.ignored}:
            continue
        if isinstance(part.value, dict):
            entries = [(name.lower(), View(value, (*part.path, name))) for name, value in sorted(part.value.items())]
            pending += reversed([(key if _is_name(key, name) else name, entry) for name, entry in entries])
        elif isinstance(part.value, list):
            items = [(key, View(value, (*part.path, str(index)))) for index, value in enumerate(part.value)]
            pending += reversed(items)


def _is_name(key: str, name: str) -> bool:
    """Whether a property is the name of a machine that the block above it describes (`sku.name`)."""
    return name == "name" and key in _properties().named


def _named(key: str, view: View, known: Machines) -> Iterator[str]:
    """The machine with GPUs, or the GPUs, that one value names."""
    properties = _properties()
    if key == _REQUIREMENTS:
        for machine in aws_attributes.machines(View({"instanceRequirements": view.value}, view.path[:-1])):
            if machine.gpus(known) != 0:
                yield machine.name
    elif key in properties.gpus:
        yield from _gpus(view)
    elif isinstance(view.value, Unknown):
        if key in properties.machines:
            raise UnknownValueError(view.path, view.value.why)
    elif isinstance(view.value, str):
        name = view.value.rsplit("/", 1)[-1].removeprefix(_SAGEMAKER)
        is_machine = (
            _is(key, (*properties.machines, *properties.others, *properties.named)) and known.gpus_of(name) != 0
        )
        is_family = _is(key, properties.families) and any(known.has_gpus(f"{name}{end}") for end in (".*", "-*"))
        if is_machine or is_family:
            yield name


def _gpus(view: View) -> Iterator[str]:
    """The GPUs of a block, a list of blocks, or a name of GPUs."""
    if isinstance(view.value, list):
        for item in view.items():
            yield from _gpus(item)
    elif isinstance(view.at().value, dict):
        count = next((view.number(key) for key in ("count", "acceleratorCount") if view.has(key)), 1)
        texts = [entry.text() for entry in view.entries().values() if isinstance(entry.at().value, str)]
        if count:
            yield from (name for text in texts for name in _gpu_names(text))
    elif isinstance(view.value, str):
        yield from _gpu_names(view.value)


def _gpu_names(text: str) -> Iterator[str]:
    name = text.rsplit("/", 1)[-1]
    if any(part in name.lower() for part in _GPU_NAMES):
        yield name


def _is(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _matches(resource: Resource, block: str) -> bool:
    return any(fnmatchcase(token(resource.type), pattern) for pattern in _patterns(block))


def _selects(resource: Resource) -> bool:
    kind = token(resource.type)
    if kind in EVALUATED:
        return kind in ASGS or kind == GKE_CLUSTER
    return _matches(resource, "clusters") or _matches(resource, "resources")


def _find(resource: Resource) -> Iterator[Unevaluated]:
    kind = token(resource.type)
    if not resource.props.value or (kind in ASGS and any(aws.groups(resource))):
        return
    if kind != GKE_CLUSTER or resource.props.flag("enableAutopilot"):
        yield Unevaluated(resource)


UNEVALUATED: Final = Subject("resources that no rule evaluates", _selects, _find)


def _evaluated(part: Unevaluated, settings: Machines, stack: Stack) -> Iterator[str]:
    kind = token(part.resource.type)
    if kind == GKE_CLUSTER:
        yield (
            "Autopilot creates GPU nodes for the pods that request them, and no rule of this pack limits their number;"
            " limit the GPUs of each namespace with a ResourceQuota, and exempt the cluster"
        )
    elif _matches(part.resource, "clusters"):
        yield f"{kind} is not evaluated by any rule of this pack; use {_instead(kind)}, or exempt the resource"
    elif names := part.gpu_machines(settings, stack):
        fix = "add the tag kubernetes.io/cluster/<name> if they are nodes" if kind in ASGS else "use a node pool"
        yield f"{', '.join(names)}: GPUs that no rule of this pack evaluates in {kind}; {fix}, or exempt the resource"


def _instead(kind: str) -> str:
    rows = table()["clusters"]
    return next(row["instead"] for row in rows if any(fnmatchcase(kind, pattern) for pattern in row["types"]))


GPU_MACHINES_EVALUATED: Final = Rule(
    name="gpu-machines-evaluated",
    title="Resources that can create GPU machines must be of types that this pack evaluates.",
    rationale="No other rule limits the number, the cost or the access of what this pack cannot read.",
    fix="Use node pools of the types that this pack evaluates, or exempt the resource with a reason.",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.HIGH,
    level=ADVICE,
    on=UNEVALUATED,
    check=_evaluated,
    settings=Machines,
    whole=True,
)

RULES: Final[tuple[AnyRule, ...]] = (GPU_MACHINES_EVALUATED,)
