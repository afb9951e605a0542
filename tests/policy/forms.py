"""The forms of an object that violates a rule in a program, made from the cases of the rules."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from policy_builders import PACKS, Sample, findings, keys
from samples import Case, cases_of

from gpu_tenancy.base.json import Json
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import render
from rule_engine.reading import is_whole
from rule_engine.rules import AnyRule

RULES: Final[list[AnyRule]] = [rule for pack in PACKS for rule in pack.rules]
_KUBERNETES: Final = "kubernetes:"
_RELEASE: Final = "kubernetes:helm.sh/v3:Release"
COMPONENT: Final = "kubernetes:yaml/v2:ConfigGroup"
_NUMBER: Final = "number-of-the-violation"
_PROGRAM: Final = """
from pathlib import Path
from pulumi_kubernetes.helm.v3 import Chart, LocalChartOpts
from pulumi_kubernetes.kustomize import Directory
from pulumi_kubernetes.yaml import ConfigFile, ConfigGroup

ConfigGroup("objects", yaml=["decoded by the provider"], resource_prefix="ConfigGroup")
ConfigFile("objects", str(Path(__file__).with_name("objects.json")), resource_prefix="ConfigFile")
Chart("objects", LocalChartOpts("chart", resource_prefix="Chart"))
Directory("objects", ".", resource_prefix="Directory")
"""
# Its objects have only their names until the transformation.
_TRANSFORMING: Final = f"""
import json
from pathlib import Path
from pulumi_kubernetes.yaml import ConfigGroup

objects = json.loads(Path(__file__).with_name("objects.json").read_text())
by_number = {{each["metadata"]["annotations"]["{_NUMBER}"]: each for each in objects}}


def change(each, _):
    each.update(by_number[each["metadata"]["annotations"]["{_NUMBER}"]])


ConfigGroup("objects", yaml=["as above"], transformations=[change], resource_prefix="transformation")
"""
_DECODING: Final = ("kubernetes:yaml:decode", "kubernetes:helm:template", "kubernetes:kustomize:directory")
_EXPANDED: Final = ("ConfigGroup", "ConfigFile", "Chart", "Directory", "transformation")


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """Resources that violate a rule."""

    case: Case
    which: str  # name of the violating resource in the case
    path: str  # the changed place in it; empty if it is written in full, or if several places are changed
    lacks: bool  # the violation is a missing field

    @property
    def changed(self) -> Sample:
        return self.case.program[self.which]


@cache
def violations(name: str) -> tuple[Violation, ...]:
    """A rule's cases with a changed Kubernetes object; without them, with any changed resource."""
    made = [*_violations(name)]
    kubernetes = [violation for violation in made if violation.changed.type.startswith(_KUBERNETES)]
    return tuple(kubernetes or made)


def _violations(name: str) -> Iterator[Violation]:
    for case in cases_of(name, "denied"):
        alone = [*case.program][-1:] if len(case.program) > 1 or not case.rule.whole else []
        changed = [which for which in case.program if case.changes[which]]
        changed = changed or [which for which in case.program if case.derived[which]] or alone
        reported = [which for which in changed if case.messages[0].startswith(_place(case, which))]
        for which in (reported or changed)[:1]:
            changes = case.changes[which] or case.derived[which]
            (path,) = changes if len(changes) == 1 else ("",)
            yield Violation(case, which, path.removeprefix("properties."), None in changes.values())


def _place(case: Case, which: str) -> str:
    return case.program[which].resource().place.partition(",")[0]


def is_reported(violation: Violation, form: Sample) -> bool:
    """Whether a rule reports the violation in another form, or that it is not evaluated, at its own level."""
    # Other rules may report a release or component, too: their resources are missing.
    alone = form.type in {_RELEASE, COMPONENT} and form is not violation.changed
    given = {violation.which: form} if alone else {**violation.case.program, violation.which: form}
    rule = violation.case.rule
    return any(finding.level is rule.level for finding in findings(rule, given, violation.case.settings))


def itself(violation: Violation) -> Sample:
    return violation.changed


def patch(violation: Violation) -> Sample | None:
    """A patch with all fields of the object; it cannot remove a field."""
    sample = violation.changed
    if not _is_kubernetes(sample) or sample.type.endswith("Patch") or violation.lacks:
        return None
    return replace(sample, type=f"{sample.type}Patch")


def patch_of_field(violation: Violation) -> Sample | None:
    """A patch with the changed field alone; None if the field names the object, or if the object is new."""
    whole = patch(violation)
    path = keys(violation.path)
    if whole is None or not path or path[:2] in (["metadata", "namespace"], ["metadata", "name"]):
        return None
    identity = {key: value for key, value in whole.props["metadata"].items() if key in ("name", "namespace")}
    props = _only(whole.props, path, ())
    return replace(whole, props={**props, "metadata": {**props.get("metadata", {}), **identity}})


def _only(value: Any, path: list[str], above: tuple[str, ...]) -> Any:
    """The value at a path, with the surrounding values only as far as server-side apply replaces them as a whole."""
    if not path or (above and isinstance(value, (dict, list)) and is_whole(above[-1], is_list=isinstance(value, list))):
        return cast("Any", value)
    first, *rest = path
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {first: _only(fields[first], rest, (*above, first))} if first in fields else {}
    item = cast("list[Any]", value)[int(first)]
    if not rest:
        return [item]
    name = {"name": item["name"]} if "name" in item else dict[str, Any]()
    return [{**name, **_only(item, rest, (*above, first))}]


def listed(violation: Violation) -> Sample | None:
    sample = violation.changed
    if not _is_kubernetes(sample) or sample.type.endswith(("List", "Patch")):
        return None
    return replace(sample, type=f"{sample.type}List", props={"items": [sample.props]})


def component(violation: Violation) -> Sample | None:
    """A component whose provider has the object, as without a provider."""
    return Sample(COMPONENT, {"objs": [violation.changed.props]}, "objects") if _is_child(violation) else None


def released(violation: Violation) -> Sample | None:
    """A release of a chart whose template is the object, which a preview does not show."""
    if not _is_kubernetes(violation.changed):
        return None
    return Sample(_RELEASE, {"chart": "objects", "version": "1.0.0"}, "objects")


def _expanded(form: str) -> Callable[[Violation], Sample | None]:
    def of(violation: Violation) -> Sample | None:
        name = violation.case.rule.name
        if not _is_child(violation) or violation is not _first(name):
            return None
        return _children()[form, name]

    return of


# Forms of an object in a program; None if that is not possible.
FORMS: Final[Mapping[str, Callable[[Violation], Sample | None]]] = {
    "itself": itself,
    "patch": patch,
    "patch of the field": patch_of_field,
    "list": listed,
    **{form: _expanded(form) for form in _EXPANDED},
    "component": component,
    "release": released,
}


def silent(form: str) -> list[str]:
    """The rules that report nothing of a violation in a form."""
    samples = ((rule.name, each, FORMS[form](each)) for rule in RULES for each in violations(rule.name))
    return sorted({name for name, each, sample in samples if sample is not None and not is_reported(each, sample)})


def possible(form: str) -> list[str]:
    """The rules with a violation that can have a form."""
    return sorted(rule.name for rule in RULES if any(FORMS[form](each) for each in violations(rule.name)))


def _is_kubernetes(sample: Sample) -> bool:
    return sample.type.startswith(_KUBERNETES) and sample.type.split(":")[1] not in {"helm.sh/v3", "helm.sh/v4"}


def _is_child(violation: Violation) -> bool:
    sample = violation.changed
    return (
        _is_kubernetes(sample) and {"apiVersion", "kind"} <= sample.props.keys() and not sample.type.endswith("Patch")
    )


def _first(name: str) -> Violation | None:
    return next(filter(_is_child, violations(name)), None)


@cache
def _children() -> Mapping[tuple[str, str], Sample]:
    """Pulumi's registrations for the first violation of each rule, by form and rule: the SDK's code expands it."""
    first = {rule.name: violation for rule in RULES if (violation := _first(rule.name))}
    objects = [_numbered(violation.changed.props, name) for name, violation in first.items()]
    stubs = [{key: each[key] for key in ("apiVersion", "kind", "metadata")} for each in objects]
    registrations = [*_registered(_PROGRAM, objects, objects), *_registered(_TRANSFORMING, objects, stubs)]
    children: dict[tuple[str, str], Sample] = {}
    for registration in registrations:
        props: dict[str, Any] = deepcopy(dict(registration.inputs))
        if registration.custom:
            name = props["metadata"]["annotations"].pop(_NUMBER)
            children[registration.parent.rsplit("::", 1)[-1].split("-")[0], name] = replace(
                first[name].changed, type=registration.type, props=props
            )
    return children


def _registered(text: str, objects: Sequence[Json], decoded: Sequence[Json]) -> Sequence[Registration]:
    """The registrations of a program whose provider decodes its files as these objects."""
    with TemporaryDirectory() as folder:
        program = Path(folder)
        program.joinpath("objects.json").write_text(json.dumps(objects), encoding="utf-8")
        program.joinpath("__main__.py").write_text(text, encoding="utf-8")
        (program / "chart").mkdir()
        answers = {token: {"result": [*decoded]} for token in _DECODING}
        return render(program, project="forms", stack="all", config={}, answers=answers).registrations


def _numbered(props: dict[str, Any], name: str) -> dict[str, Any]:
    numbered = deepcopy(props)
    metadata: dict[str, Any] = numbered.get("metadata") or {}
    annotations: dict[str, Any] = metadata.get("annotations") or {}
    return {**numbered, "metadata": {**metadata, "annotations": {**annotations, _NUMBER: name}}}
