"""Resources of programs, and the findings of rules in them."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Final

import yaml
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2

from cloud_rules import PACK as CLOUDS
from rule_engine.evaluator import Evaluator, Finding
from rule_engine.reading import SECRET, SIGNATURE
from rule_engine.resources import Resource, read
from rule_engine.rules import AnyRule, Pack
from rule_engine.stacks import Stack
from workload_rules import PACK as WORKLOADS

PACKS: Final = (WORKLOADS, CLOUDS)
UNKNOWN: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"  # of Pulumi's engine for a text that is unknown in a preview
TODAY: Final = date(2026, 11, 21)
FOREIGN: Final = Path(__file__).parent / "foreign"
_URN: Final = "urn:pulumi:prod::any::"


@dataclass(frozen=True, slots=True)
class Sample:
    """A resource of a program; `parents` are types, as its URN has them before its own."""

    type: str
    props: dict[str, Any]
    name: str = "it"
    protect: bool = False
    ignored: tuple[str, ...] = ()
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    parents: str = ""

    @property
    def urn(self) -> str:
        return f"{_URN}{self.parents}{self.type}::{self.name}"

    def request(self) -> analyzer_pb2.AnalyzeRequest:
        """The engine's request: numbers as floats, names in camelCase."""
        props = Struct()
        props.update(self.props)
        options = analyzer_pb2.AnalyzerResourceOptions(protect=self.protect, ignoreChanges=list(self.ignored))
        return analyzer_pb2.AnalyzeRequest(
            type=self.type, urn=self.urn, name=self.name, properties=props, options=options
        )

    def resource(self) -> Resource:
        resource = read(self.request())
        resource.needs = self.needs
        return resource


def secret(value: object) -> dict[str, object]:
    return {SIGNATURE: SECRET, "value": value}


def manifest(text: str) -> Sample:
    """A Kubernetes object from YAML, with the SDKs' type token."""
    return sample_of(yaml.safe_load(text))


def rbac_object(kind: str, name: str, rest: str) -> Sample:
    """A role or a binding in one line."""
    return manifest(f"{{apiVersion: rbac.authorization.k8s.io/v1, kind: {kind}, metadata: {{name: {name}}}, {rest}}}")


def sample_of(props: dict[str, Any]) -> Sample:
    """A Kubernetes object with the SDKs' type token."""
    version = props["apiVersion"] if "/" in props["apiVersion"] else f"core/{props['apiVersion']}"
    return Sample(f"kubernetes:{version}:{props['kind']}", props, props["metadata"]["name"])


def foreign_program(name: str) -> list[Sample]:
    """A program of the folder `foreign`, by type and name; `unknown` is a value that a preview does not know."""
    text = (FOREIGN / f"{name}.yaml").read_text(encoding="utf-8").replace("unknown", UNKNOWN)
    return [
        sample_of(document) if "kind" in document else resource_of(document) for document in yaml.safe_load_all(text)
    ]


def resource_of(fields: Mapping[str, Any]) -> Sample:
    """A resource as in Pulumi YAML, with its `name`; `needs` has the resources on which properties depend."""
    props: dict[str, Any] = fields["properties"]
    own = {key: tuple(f"{_URN}{urn}" for urn in urns) for key, urns in fields.get("needs", {}).items()}
    options: dict[str, Any] = fields.get("options", {})
    return Sample(
        fields["type"],
        props,
        fields["name"],
        protect=options.get("protect", False),
        ignored=tuple(options.get("ignoreChanges", ())),
        needs={**dict.fromkeys(props, ()), **own} if own else {},
        parents=fields.get("parents", ""),
    )


def with_field(sample: Sample, path: str, value: object) -> Sample:
    props = deepcopy(sample.props)
    set_field(props, path, value)
    return replace(sample, props=props)


def set_field(data: dict[str, Any], path: str, value: object) -> None:
    """Sets the value at a path such as `spec.containers.0.image`; None removes it."""
    *way, last = keys(path)
    part: Any = data
    for key in way:
        part = _below(part, key)
    at: Any = int(last) if isinstance(part, list) else last
    if value is None:
        del part[at]
    elif isinstance(part, list):
        part[at : at + 1] = [value]
    else:
        part[at] = value


def _below(part: list[Any] | dict[str, Any], key: str) -> Any:
    return part[int(key)] if isinstance(part, list) else part.setdefault(key, {})


def keys(path: str) -> list[str]:
    """The parts of `a.b.'c.d/e'.0`; quotes keep dots."""
    parts: list[str] = []
    rest = path
    while rest:
        if rest.startswith("'"):
            key, _, rest = rest[1:].partition("'")
            rest = rest.removeprefix(".")
        else:
            key, _, rest = rest.partition(".")
        parts.append(key)
    return parts


def _no_exemptions(_: Resource) -> dict[str, str]:
    return {}


def findings(
    rule: AnyRule, given: Mapping[str, Sample], settings: Mapping[str, Any] | None = None, pack: Pack | None = None
) -> list[Finding]:
    """The findings of one rule in resources, as in the pack's process."""
    own = next((one for one in PACKS if rule in one.rules), None)
    alone = replace(own, rules=(rule,), exemptions=_no_exemptions) if own else None
    evaluator = Evaluator(pack or alone or Pack("test", "1", "One rule.", (rule,), _no_exemptions), TODAY)
    evaluator.configure({}, {rule.name: settings or {}})
    resources = [resource.resource() for resource in given.values()]
    diagnostics = (
        evaluator.evaluate_stack(Stack(resources))
        if rule.whole
        else [finding for resource in resources for finding in evaluator.evaluate(resource)]
    )
    return [finding for finding in diagnostics if finding.rule.name == rule.name]


def all_findings(evaluator: Evaluator, given: Iterable[Sample]) -> list[Finding]:
    """The findings of all rules of a pack in resources and in the stack of them."""
    resources = [sample.resource() for sample in given]
    of_resources = [finding for resource in resources for finding in evaluator.evaluate(resource)]
    return [*of_resources, *evaluator.evaluate_stack(Stack(resources))]


def messages(found: Sequence[Finding], outcome: str) -> tuple[str, ...]:
    return tuple(finding.message for finding in found if finding.outcome == outcome)


def doubt(place: str, path: str, why: str = "is unknown until deployment") -> str:
    """The message about an unknown value; for another resource, `path` begins with its place."""
    return f"{place}: not evaluated: {path} {why}; check again after deployment, or set a literal value"
