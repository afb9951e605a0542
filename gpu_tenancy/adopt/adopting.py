"""Drafts a stack from a running cluster, and compares their objects."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from pydantic import ValidationError

from gpu_tenancy.adopt.tenancy import Seen
from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, map_at, text_at, texts_at
from gpu_tenancy.base.problems import Problem, StackError
from gpu_tenancy.base.quantity import CPU, MEMORY, amount, format_amount, parse_quantity
from gpu_tenancy.base.texts import first_names
from gpu_tenancy.cluster.cluster_queues import read_cluster_queue
from gpu_tenancy.cluster.pods import Manifest, name_of, namespace_of
from gpu_tenancy.cluster.reading import Kind
from gpu_tenancy.engine.objects import KubernetesObject
from gpu_tenancy.engine.project import Preview, rendered
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.load import load
from gpu_tenancy.model.project import Declared, project_folder, project_name
from gpu_tenancy.model.source import Source, value_at
from gpu_tenancy.model.spec.teams import Team
from gpu_tenancy.model.yaml import read_table

_COMPARED: Final[tuple[Kind, ...]] = (
    "Namespace", "ResourceFlavor", "Cohort", "ClusterQueue", "LocalQueue", "ResourceQuota", "LimitRange",
    "PriorityClass", "WorkloadPriorityClass",
)  # fmt: skip
# Kinds that show teams and their GPUs.
_OF_TEAMS: Final[tuple[Kind, ...]] = ("ClusterQueue", "Cohort", "LocalQueue", "Namespace", "Node", "ResourceFlavor")
_AMOUNTS: Final = (CPU, MEMORY)
_TABLE: Final[Any] = read_table(Path(__file__).with_name("adopting.yaml"))
_MANY: Final = frozenset({"Deployment", "Job", "PersistentVolumeClaim"})  # of which only the first ones are named
_BOUNDS: Final = frozenset({"claims", "compute", "containers", "objects"})  # sections of a team


@dataclass(frozen=True, slots=True)
class Difference:
    """A field with its values in the cluster and in the stack; empty if unset."""

    kind: str
    name: str
    field: str
    live: str
    planned: str


@dataclass(slots=True)
class Adopted:
    """A stack for a running cluster; without a comparison if there are `problems`."""

    sections: dict[str, Any]
    notes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])  # sources of entries
    same: Counter[str] = field(default_factory=Counter[str])  # objects as in the cluster, by kind
    new: Counter[str] = field(default_factory=Counter[str])  # objects to create, by kind
    differences: list[Difference] = field(default_factory=list[Difference])  # of existing objects
    left: list[str] = field(default_factory=list[str])  # not in the stack; a deployment leaves it alone
    assumed: list[str] = field(default_factory=list[str])  # in the stack, but not in the cluster
    problems: tuple[Problem, ...] = ()  # reasons against a stack, such as guarantees beyond the nodes
    incomplete: tuple[str, ...] = ()  # kinds that are not readable in full, so that teams may be missing


def adopt(seen: Seen, name: str, exists: Callable[[Reference], bool | None], project: Path | None = None) -> Adopted:
    """Drafts a stack from a cluster, plans it and compares its objects with the cluster's.

    `exists` reports whether the cluster has an object that was not read; None if the user may not know. Raises
    ConsoleError without Kueue, if no namespace has a queue, or no node shows the machine of a flavor.
    """
    if not seen.facts.state.has_kueue:
        raise ConsoleError("the cluster has no Kueue, whose queues show teams", "write a stack: `tenancy stack init`")
    if not seen.teams.entries or not seen.pools[0].entries:
        what = "namespaces with a LocalQueue" if not seen.teams.entries else "nodes of a ResourceFlavor"
        raise ConsoleError(f"the cluster shows no {what}", "check your rights with `tenancy cluster inspect`")
    made = Adopted(seen.sections(name))
    for section, part in seen.parts.items():
        made.notes |= {(section, entry): note for entry, note in part.notes.items()}
        made.left += part.left
        made.assumed += part.assumed
    made.left += [missing.text for missing in seen.facts.state.refused()]
    made.incomplete = tuple(missing.kinds for missing in seen.facts.state.refused(*_OF_TEAMS))
    folder = project_folder(project)
    try:
        planned = plan_sections(made.sections, name, folder)
        for stage in (_with_queue_shares, _with_keys):
            stage(made, seen, planned)
            planned = _plan_without_refused(made, name, folder)
    except StackError as error:
        made.problems = tuple(error.problems)
    else:
        _compare(made, seen, planned, exists)
    return made


def plan_sections(sections: dict[str, Any], name: str, project: Path) -> Preview:
    """Plans a stack that is not in a file yet. Raises StackError if it is not valid."""
    source = Source(sections, f"stacks/Pulumi.{name}.yaml")
    return rendered(Declared(name, project, project_name(project), source, load(source)))


def _plan_without_refused(made: Adopted, name: str, folder: Path) -> Preview:
    """Plans the stack without bounds of namespaces that it refuses, such as a quota below that of the queue."""
    while True:
        try:
            return plan_sections(made.sections, name, folder)
        except StackError as error:
            if not [problem for problem in error.problems if _removed(made, problem)]:
                raise


def _removed(made: Adopted, problem: Problem) -> bool:
    """Removes the refused bound from its team, and the budget that it contradicts; false for any other problem."""
    if problem.path[0] != "teams" or len(problem.path) < len(("teams", "team", "section", "key")):
        return False
    _, team, section, *keys = map(str, problem.path)
    entry, found = made.sections["teams"][team], False
    for *around, key in ((section, *keys), ("compute", "requests", keys[-1]), ("compute", "limits", keys[-1])):
        place: Any = value_at(entry, tuple(around))
        found |= (
            section in _BOUNDS and isinstance(place, dict) and cast("dict[str, Any]", place).pop(key, None) is not None
        )
    made.sections["teams"][team] = _without_empty(entry)
    if found:
        made.left.append(f"Team {team}: {'.'.join((section, *keys))}: {problem.value or ''} {problem.rule}")
    return found


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _without_empty(each) for key, each in cast("dict[str, Any]", value).items()}
    return {key: each for key, each in inner.items() if each != {}}


def _with_queue_shares(made: Adopted, seen: Seen, planned: Preview) -> None:
    """Sets CPU and memory of queues unless they are the share of the GPUs."""
    for item in planned.objects:
        live = seen.facts.queues.cluster_queues.get(seen.queue_of.get(item.name, ""))
        if item.kind != "ClusterQueue" or not live:
            continue
        team, ours = made.sections["teams"][item.name], read_cluster_queue(item.manifest).spec.quotas
        for (flavor, resource), quota in live.spec.quotas.items():
            wanted = ours.get((flavor, resource))
            present = (quota.nominal, quota.borrowing_limit)
            if resource in _AMOUNTS and wanted and (wanted.nominal, wanted.borrowing_limit) != present:
                share = seen.bounds(live.spec, flavor, resource)
                texts = {key: format_amount(resource, value) for key, value in share.items() if value or key == "limit"}
                team.setdefault("quota", {}).setdefault(flavor, {})[resource] = texts
            lent = wanted is None or (quota.lending_limit == 0) == (wanted.lending_limit == 0)
            if resource not in _AMOUNTS and quota.nominal and not lent:
                team["lends"] = quota.lending_limit != 0


def _with_keys(made: Adopted, seen: Seen, planned: Preview) -> None:
    """Sets keys of teams for fields that differ from the stack's defaults."""
    for item in planned.objects:
        team = item.name if item.kind in {"Namespace", "ClusterQueue"} else item.namespace
        live = _live(seen, item)
        if team not in made.sections["teams"] or live is None:
            continue
        ours, theirs = fields(item.manifest), _fields_with_defaults(live, item.kind)
        bounded = {name.removeprefix("limits.") for *_, name in theirs}
        for path, value in sorted(theirs.items(), reverse=True):  # Requests before limits, which need them.
            key = text_at(_TABLE["keys"], item.kind, *path)
            needed = path[-1].startswith("requests.") and path[-1].removeprefix("requests.") in bounded
            if key and (needed or not _equal(path[-1], value, ours.get(path, ""))):
                _try(made, team, key.split("."), value)


def _try(made: Adopted, team: str, key: Sequence[str], value: str) -> None:
    """Sets a key of a team if the model accepts it, as text or as a number."""
    entry, why = made.sections["teams"][team], ""
    values: list[str | float] = [value]
    with suppress(ValueError):
        exact = parse_quantity(value)
        values.append(int(exact) if exact.denominator == 1 else float(exact))
    for written in values:
        changed = _set(entry, key, written)
        try:
            Team.model_validate(changed)
        except ValidationError as error:
            why = error.errors()[0].get("ctx", {}).get("rule") or error.errors()[0]["msg"]
        else:
            made.sections["teams"][team] = changed
            return
    made.left.append(f"Team {team}: {'.'.join(key)}: {value} {why}")


def _set(entry: Mapping[str, Any], key: Sequence[str], value: Any) -> dict[str, Any]:
    first, *rest = key
    return {**entry, first: _set(entry.get(first, {}), rest, value) if rest else value}


def _live(seen: Seen, item: KubernetesObject) -> Manifest | None:
    """The object of the cluster with the same function as an object of the stack, by any name."""
    state = seen.facts.state
    if item.kind not in _COMPARED or item.kind not in state.objects:
        return None
    found = {name_of(each): each for each in state.of(item.kind, item.namespace)}
    if item.name in found or not found:
        return found.get(item.name)
    if item.kind in {"ClusterQueue", "LocalQueue"}:
        of_team = item.kind == "ClusterQueue"
        return found.get(seen.queue_of.get(item.name, "") if of_team else seen.facts.queues.usual(item.namespace))
    if item.kind not in {"ResourceQuota", "LimitRange"} or at(item.manifest, "spec", "scopeSelector"):
        return None
    scoped = ("scopes", "scopeSelector")
    unscoped = [each for each in found.values() if not any(at(each, "spec", key) for key in scoped)]
    if not unscoped or not map_at(unscoped[0], "spec", "hard"):
        return next(iter(unscoped), None)  # of LimitRanges the first one
    hard: dict[str, Json] = {}  # What several ResourceQuotas of a namespace bound together.
    for quota in unscoped:
        for name, value in texts_at(quota, "spec", "hard").items():
            if name not in hard or amount(name, value) < amount(name, str(hard[name])):
                hard[name] = value
    names: Json = {"name": " and ".join(map(name_of, unscoped)), "namespace": item.namespace}
    return {**unscoped[0], "metadata": names, "spec": {"hard": hard}}


def _compare(made: Adopted, seen: Seen, planned: Preview, exists: Callable[[Reference], bool | None]) -> None:
    adopted: list[str] = []
    unknown: Counter[str] = Counter()
    kept: set[tuple[str, str, str]] = set()
    state = seen.facts.state
    known: set[str] = {kind for kind in state.objects if state.knows(kind)}
    read = {(kind, namespace_of(each), name_of(each)) for kind in known for each in state.of(cast("Kind", kind))}
    spaces = {name_of(each) for each in state.of("Namespace")}
    for item in planned.objects:
        reference, live = Reference.of(item.manifest), _live(seen, item)
        there: bool | None = (item.kind, item.namespace, item.name) in read
        if not (item.kind in known or (item.namespace and item.namespace not in spaces)):
            there = exists(reference)
        if there is None:
            unknown[item.kind] += 1
            adopted.append(reference.adoptable)
        elif there:
            adopted.append(reference.adoptable)
            kept.add((item.kind, item.namespace, item.name))
        else:
            made.new[item.kind] += 1
        if live:
            place = "/".join(filter(None, (namespace_of(item.manifest), name_of(item.manifest))))
            name = place if there else f"{place} (new beside {name_of(live)})"
            found = [each for each in _differences(name, live, item.manifest) if there or each.live]
            made.differences += found
            made.same[item.kind] += bool(there) and not found
    made.left += (f"{kind} {count}: you may not list them; adopted if they exist" for kind, count in unknown.items())
    made.left += _left_alone(seen, kept)
    made.sections["cluster"] = {**made.sections["cluster"], "adopt": sorted(adopted)}


def _left_alone(seen: Seen, kept: set[tuple[str, str, str]]) -> Iterator[str]:
    """Objects of tenancy that the stack does not have, with the effect."""
    state, teams = seen.facts.state, seen.queue_of
    for kind, text in _TABLE["left"].items():
        names: dict[str, list[str]] = defaultdict(list)
        for each in state.of(kind):
            space = namespace_of(each)
            left = (kind, space, name_of(each)) not in kept and not at(each, "metadata", "ownerReferences")
            if left and (not space or space in teams):
                names[f"{space}/" if space else ""].append(name_of(each))
        for space, several in names.items():
            yield f"{kind} {space}{first_names(several, 3 if kind in _MANY else len(several))}: {text}"
    for each in seen.facts.gangs:
        yield f"Queue {each.name} of Volcano: a stack has gangs by team and flavor"
    kinds: tuple[Kind, ...] = ("LocalQueue", "ResourceQuota", "LimitRange")
    for space in seen.facts.tenants:
        found = [f"{kind} {name_of(each)}" for kind in kinds for each in state.of(kind, space)]
        if found and space not in teams:
            yield f"Namespace {space}: no LocalQueue of a ClusterQueue, so no team ({', '.join(found)})"


Fields = dict[tuple[str, ...], str]  # values by path
_DERIVED: Final = frozenset({"status", "coveredResources", "apiVersion", "kind"})


def _differences(name: str, live: Manifest, planned: Manifest) -> Iterator[Difference]:
    # Labels of others stay, so they are no difference.
    kind = text_at(planned, "kind")
    ours, theirs = _fields_with_defaults(planned, kind), _fields_with_defaults(live, kind)
    for path in dict.fromkeys((*ours, *theirs)):
        one, other = theirs.get(path, ""), ours.get(path, "")
        of_others = path[:2] == ("metadata", "labels") and not other
        if not of_others and not _equal(path[-1], one, other):
            yield Difference(kind, name, ".".join(path), one, other)


def _fields_with_defaults(live: Manifest, kind: str) -> Fields:
    return {**fields(_TABLE["defaults"].get(kind, {})), **fields(live)}


def fields(manifest: Manifest) -> Fields:
    """Fields of an object by path; entries of lists are by their name, so that their order does not count."""
    labels = texts_at(manifest, "metadata", "labels")
    rest = {key: value for key, value in manifest.items() if key != "metadata"}
    return {("metadata", "labels", key): value for key, value in labels.items()} | dict(_flat(rest, ()))


def _flat(value: Json, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in _DERIVED:
                yield from _flat(inner, (*path, key))
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict):
                key = next((key for key in ("name", "type", "key") if key in inner), "")
                rest = {name: each for name, each in inner.items() if name != key}
                yield from _flat(rest, (*path, str(inner[key])) if key else path)
            else:
                yield (*path, str(inner)), "listed"
    elif value is not None:
        yield path, str(value)


def _equal(name: str, one: str, other: str) -> bool:
    if one == other or not (one and other):
        return one == other
    try:
        return amount(name, one) == amount(name, other)
    except ConsoleError:
        return False
