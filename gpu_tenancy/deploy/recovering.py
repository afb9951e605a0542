"""Recovers the states of an environment's Pulumi stacks after a killed deployment.

The state of a stack that has only objects with its mark is written at the end of a deployment, because backends of
files and buckets write all of it at each step. So a killed run leaves the old state. Objects with the mark that the
state lacks were created, missing ones deleted, and objects whose fields of Pulumi's provider differ were changed, by
the run or by others.

Other states can have pending creations, and Pulumi does not know whether they were done: it warns at each
deployment, and creates the object again, which fails. Pulumi itself only asks the user for each ID:
https://www.pulumi.com/docs/support/troubleshooting/common-issues/interrupted-updates/.
"""

import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import uuid4

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.texts import shortened
from gpu_tenancy.deploy import states
from gpu_tenancy.deploy.stacks import PENDING, RERUN, OperationError, Stacks
from gpu_tenancy.deploy.states import Entry, State
from gpu_tenancy.engine import objects
from gpu_tenancy.engine.recording import Registration
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.live import Failure, Live, survey
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import CONNECTIONS, HOLDING
from gpu_tenancy.kube.waiting import holders
from gpu_tenancy.model.names import COMPUTE_DOMAIN, with_marks

_PLUGIN: Final = "pulumi-kubernetes"
"""Start of the field managers of Pulumi's Kubernetes provider:
https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply/."""
PROVIDERS: Final = "pulumi:providers:kubernetes"  # type of providers of Kubernetes
_OF_ENGINE: Final = frozenset({"__internal", "version"})  # inputs of a provider that the engine adds
_UNKNOWN: Final = "[unknown]"


def only_objects(state: State) -> bool:
    """Whether a stack had only objects of Kubernetes: all that it had carries its mark."""
    entries = (one for one in state.get("resources") or () if one.get("custom") and not states.is_scaffold(one))
    return all(states.is_object(one) for one in entries if not one["type"].startswith(PROVIDERS))


@dataclass(frozen=True, slots=True)
class Recovered:
    """Differences between a stack's state and its cluster."""

    state: State  # including `taken`
    taken: tuple[Reference, ...]  # objects that it lacked
    reread: tuple[str, ...]  # URNs of these and of objects that differ
    # A line for each field that others changed, and object that they deleted or that cannot be read
    changed: tuple[str, ...]
    ran: tuple[Reference, ...]  # deleted jobs


def recovered(  # noqa: PLR0913 - what is compared
    rendered: Rendered | None,
    state: State,
    all_states: Iterable[State],
    cluster: Cluster,
    *,
    adopt: Iterable[str],
    mark: str,
) -> Recovered:
    """Compares a stack's state with its cluster, unchanged; raises ApplyError for foreign and unreadable objects.

    Without `rendered`, no run was killed: the state has all that was created. `adopt` names objects of others to take
    over; `all_states` are the states of all stacks of the environment.
    """
    everywhere = [entry for one in all_states for entry in one.get("resources") or ()]
    registered = rendered.registrations if rendered else ()
    wanted = {Reference.of(one.inputs): one for one in registered if objects.is_object(one)}
    created = states.leftovers(cluster, [*wanted], states.keys(everywhere), frozenset(adopt), mark)
    known = {Reference.of(entry["inputs"]): entry for entry in state.get("resources") or () if states.is_object(entry)}
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        lives = survey(cluster, pool, known)
    _same_cluster(known, lives)
    ran = [one for one, live in lives.items() if live is None and _is_job(known[one])]
    other = [one for one, live in lives.items() if _differs(known[one], live)]
    changes = [_changes(cluster, one, known[one], lives[one]) for one in other]
    if seen := {str(entry["urn"]): entry for _, entry in changes if entry}:
        state = {**state, "resources": [seen.get(str(entry["urn"]), entry) for entry in state["resources"]]}
    plain = [one for one in created if not wanted[one].secret_paths]
    if rendered and created:
        building = _Building(rendered, state, everywhere, mark)
        for one, live in created.items():
            building.add(wanted[one].urn, live)
        state = building.state
    return Recovered(
        state,
        tuple(created),
        (*(wanted[one].urn for one in plain), *(str(known[one]["urn"]) for one in other)),
        tuple(line for lines, _ in changes for line in lines),
        tuple(ran),
    )


def _same_cluster(known: Mapping[Reference, Entry], lives: Mapping[Reference, Live | Failure | None]) -> None:
    """Refuses a cluster without any object of the state: a deployment would create them there again."""
    uids = {one: uid for one, entry in known.items() if (uid := text_at(entry, "outputs", "metadata", "uid"))}
    there = (live for one, uid in uids.items() if isinstance(live := lives[one], Live) and live.uid == uid)
    if uids and next(there, None) is None:
        raise ConsoleError(
            f"the cluster has none of the {len(uids)} objects of the state",
            "select the cluster of the stack; if its objects were deleted, run `pulumi refresh`, then the same command",
        )


def _is_job(entry: Entry) -> bool:
    """Whether it is a job of a team."""
    kind = entry["urn"].split("::")[2]  # with the types of its parents
    return any(f":{parent}$" in kind for parent in ("TrainingJob", "GangJob")) and not kind.endswith(COMPUTE_DOMAIN[1])


def _own(managed: Iterable[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    return [one for one in managed if text_at(one, "manager").startswith(_PLUGIN) and "subresource" not in one]


def _differs(entry: Entry, live: Live | Failure | None) -> bool:
    """Whether fields that the provider set may differ from the state, or a deployment has to create the object again.

    Never for an object held for maintenance, nor for a job that somebody deleted.
    """
    before = list(maps_at(entry, "outputs", "metadata", "managedFields"))
    if isinstance(live, Failure):
        return True
    if live is None or live.deleting:
        return not _is_job(entry)
    return bool(before) and HOLDING not in live.managers and _own(before) != _own(live.managed)


def _changes(
    cluster: Cluster, reference: Reference, entry: Entry, live: Live | Failure | None
) -> tuple[list[str], Entry | None]:
    """What others changed: each field that the stack sets, with both values, the field manager and the time.

    The second value is another entry for the state, if the provider would overlook a change when it reads the object.
    """
    if isinstance(live, Failure):
        return [str(live)], None
    if live is None:
        return [f"{reference}: deleted since the last deployment"], None
    deployed, now = states.plain(entry["outputs"]), cluster.get(*reference) or {}
    if live.deleting:
        return [f"{reference}: is being deleted; {holders(now)}"], None
    own = _own(live.managed)
    others = [one for one in live.managed if one not in own and "subresource" not in one]
    lines: list[str] = []
    inputs: states.Mutable = deepcopy(entry["inputs"])
    for path, wanted in _leaves(states.plain(entry["inputs"])):
        before, after = at(deployed, *path), at(now, *path)
        if after not in (before, wanted):
            by = next((one for one in others if at(one, "fieldsV1", *(f"f:{key}" for key in path)) is not None), None)
            who = f", by {text_at(by, 'manager')} at {text_at(by, 'time')}" if by else ""
            secret = reference.kind == "Secret" or any(
                at(states.plain(entry[side]), *path) != at(states.plain(entry[side], hidden=True), *path)
                for side in ("inputs", "outputs")
            )
            # In one line and without control characters: others wrote it, and it is shown in an issue.
            texts = [shortened(one if isinstance(one, str) else json.dumps(one)) for one in (after, before)]
            values = "" if secret else f": {', deployed as '.join(texts)}"
            lines.append(f"{reference}: {'.'.join(path)} changed since the last deployment{values}{who}")
            if wanted == {} and not secret:  # It reads only what its inputs have, so nothing below an empty selector.
                within = inputs
                for key in path[:-1]:
                    within = within[key]
                within[path[-1]] = after
    return lines, {**entry, "inputs": inputs} if inputs != entry["inputs"] else None


def _leaves(inputs: Mapping[str, Json], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Paths and values of what a stack sets; a list is one value."""
    for key, value in inputs.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def marked(inputs: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """An object with the mark of the environment, which the program adds only under an engine."""
    return {**inputs, "metadata": with_marks(inputs["kind"], inputs["metadata"], mark)}


def _plain_inputs(one: Registration) -> dict[str, Any]:
    """Inputs without secret and unknown values, which the next deployment writes again."""
    hidden = {path[0] for path in (*one.secret_paths, *one.unknown_paths)}
    return {key: value for key, value in one.inputs.items() if key not in hidden}


def _outputs(inputs: Entry, live: Live | None) -> states.Mutable:
    """Outputs of an object whose state was lost, with the field manager under which the provider created it."""
    # With the next random name it could not remove a field: the former manager would still own it.
    managers = (text_at(one, "manager") for one in _own(live.managed if live else ()) if one["operation"] == "Apply")
    return {**inputs, **({"__fieldManager": manager} if (manager := max(managers, default="")) else {})}


class _Building:
    """A state that gets resources as the program registers them, each after its parent and its provider."""

    def __init__(self, rendered: Rendered, state: State, everywhere: list[Entry], mark: str) -> None:
        self._registered = {one.urn: one for one in rendered.registrations}
        self._resources: list[Entry] = list(state.get("resources") or ())
        self._there = {str(entry["urn"]) for entry in self._resources}
        self._everywhere, self._mark, self._before = everywhere, mark, state
        name = f"{rendered.project}-{rendered.stack}"
        self._root = f"urn:pulumi:{rendered.stack}::{rendered.project}::{states.ROOT}::{name}"

    @property
    def state(self) -> State:
        return {**self._before, "resources": self._resources}

    def add(self, urn: str, live: Live | None = None) -> None:
        root: states.Mutable = {"type": states.ROOT, "custom": False}
        if urn not in self._there:
            entry = self._entry(self._registered[urn], live) if urn != self._root else root
            self._there.add(urn)
            self._resources.append({"urn": urn, **entry})

    def _entry(self, one: Registration, live: Live | None) -> states.Mutable:
        parent = one.parent or self._root
        self.add(parent)
        entry: states.Mutable = {"custom": one.custom, "type": one.type, "parent": parent}
        if one.type == PROVIDERS:
            return entry | self._provider(one)
        if not one.custom:
            return entry
        provider = one.provider.rpartition("::")[0]
        self.add(provider)
        identity = next(str(other["id"]) for other in self._resources if other["urn"] == provider)
        own, inputs = Reference.of(one.inputs).place, marked(_plain_inputs(one), self._mark)
        outputs = _outputs(inputs, live)
        return entry | {"id": own, "inputs": inputs, "outputs": outputs, "provider": f"{provider}::{identity}"}

    def _provider(self, one: Registration) -> states.Mutable:
        """The provider as in another stack of the environment, or as the program registers it."""
        same = (other for other in self._everywhere if other["type"] == PROVIDERS and states.name_of(other) == one.name)
        if other := next(same, None):
            return {key: other[key] for key in ("id", "inputs", "outputs") if key in other}
        inputs = _plain_inputs(one)
        return {"id": str(uuid4()), "inputs": inputs, "outputs": inputs}


def unchanged(rendered: Rendered, state: State, mark: str) -> bool:
    """Whether `pulumi up` of a stack would change none of its resources and outputs; False in doubt."""
    # In doubt are values that only an engine knows, and objects of another plugin. The state has secrets and no pending
    # operations. Pulumi's engine asks the provider of each object instead: 30 ms of processor time each.
    entries: list[Entry] = list(state.get("resources") or ())
    root = states.root_of(entries)
    there = {str(one["urn"]): one for one in entries if one is not root}
    registered = {one.urn: one for one in rendered.registrations}
    if root is None or there.keys() != registered.keys() or len(there) + 1 != len(entries):
        return False
    top, before = str(root["urn"]), states.plain(root.get("outputs") or {}, hidden=True)
    outputs = {key: states.plain(value) for key, value in rendered.outputs.items()}
    return (
        before.keys() == outputs.keys()
        and all(value in (_UNKNOWN, before[key]) for key, value in outputs.items())
        and all(_is_same(one, there[urn], top, mark) for urn, one in registered.items())
    )


def _is_same(one: Registration, entry: Entry, top: str, mark: str) -> bool:
    around = (
        entry.get("parent") == (one.parent or top)
        and bool(entry.get("custom")) == one.custom
        and bool(entry.get("protect")) == one.protect
        and {*entry.get("dependencies", ())} == {*one.dependencies}
        # Of a provider, a resource has the URN and the ID.
        and entry.get("provider", "").rpartition("::")[0] == one.provider.rpartition("::")[0]
        and not entry.get("delete")
    )
    if not around or one.external_id:
        return around
    if one.unknown_paths:
        return False
    before = states.plain(entry.get("inputs") or {})
    if one.type.startswith(PROVIDERS):
        if before.get("version") != version(_PLUGIN):
            return False
        return {key: value for key, value in before.items() if key not in _OF_ENGINE} == states.plain(one.inputs)
    return not one.custom or before == states.plain(marked(one.inputs, mark))


_CREATING: Final = "creating"
_TARGETS: Final = 1_000  # maximum resources in a command: 200 bytes each, Linux allows 2 MB; if more, all are read


@dataclass(frozen=True, slots=True)
class Repaired:
    """The repair of one stack's state."""

    stack: str
    taken: tuple[Reference, ...]  # objects with the mark of the environment, which are in the state now
    dropped: tuple[Reference, ...]  # ones that do not exist
    foreign: tuple[Reference, ...]  # ones without a mark, so that the next deployment is refused
    read: int  # number of other resources that were read again


def repair(stacks: Stacks, usual: Callable[[], Path]) -> list[Repaired]:
    """Ends the pending operations in the states of an environment, by the objects in its cluster, which is not changed.

    The stacks are unlocked; `usual` returns the kubeconfig for providers that name none. Raises ConsoleError if a
    pending creation is not an object of Kubernetes, the cluster does not answer, or Pulumi fails.
    """
    states = {name: stacks.interrupted(name) for name in stacks.existing()}
    pending = {name: state for name, state in states.items() if state.get(PENDING)}
    return [_repair(stacks, name, state, usual) for name, state in pending.items()]


def _repair(stacks: Stacks, name: str, state: State, usual: Callable[[], Path]) -> Repaired:
    operations = state[PENDING]
    creating: list[Entry] = [one["resource"] for one in operations if one["type"] == _CREATING]
    if others := [str(one["urn"]) for one in creating if not states.is_object(one)]:
        raise ConsoleError(
            f"stack {name}: it is unknown whether the interrupted deployment created {', '.join(others)}",
            f"look for them, then run `pulumi refresh --stack {name}` in {stacks.folder}, which asks for each",
        )
    resources: list[Entry] = [*(state.get("resources") or ())]
    there = {str(one["urn"]) for one in resources}
    missing = {Reference.of(one["inputs"]): one for one in creating if one["urn"] not in there}
    lives = _lives(resources, missing, usual) if missing else {}
    taken = {found: one for found, one in missing.items() if (live := lives[found]) and live.deployed_by == stacks.mark}
    foreign = tuple(found for found, live in lives.items() if live and found not in taken)
    for found, one in taken.items():
        there.add(str(one["urn"]))
        resources.append(
            {**states.without_missing(one, there), "id": found.place, "outputs": _outputs(one["inputs"], lives[found])}
        )
    stacks.replace(name, {**{key: value for key, value in state.items() if key != PENDING}, "resources": resources})
    if reading := sorted({str(one["resource"]["urn"]) for one in operations} & there):
        reread(stacks, name, reading)
    dropped = tuple(found for found, live in lives.items() if not live)
    return Repaired(name, tuple(taken), dropped, foreign, len(reading) - len(taken))


def _lives(
    resources: list[Entry], wanted: Mapping[Reference, Entry], usual: Callable[[], Path]
) -> dict[Reference, Live | None]:
    provider = str(next(iter(wanted.values()))["provider"]).rpartition("::")[0]
    inputs: Entry = next(one["inputs"] for one in resources if one["urn"] == provider)
    with cluster_of(inputs, usual) as cluster, ThreadPoolExecutor(CONNECTIONS) as pool:
        found = survey(cluster, pool, wanted)
    lives: dict[Reference, Live | None] = {}
    for reference, live in found.items():
        if isinstance(live, Failure):
            raise ConsoleError(f"{reference}: {live.why}", RERUN)
        lives[reference] = live
    return lives


@contextmanager
def cluster_of(provider: Entry, usual: Callable[[], Path]) -> Generator[Cluster]:
    """The cluster of a provider, whose kubeconfig is a path, a text, or missing."""
    given, context = states.plain(provider.get("kubeconfig")) or "", states.plain(provider.get("context")) or None
    with TemporaryDirectory() as folder:  # only its owner can read it
        file = Path(given).expanduser() if given else usual()
        if "\n" in given or given.startswith("{"):
            file = Path(folder) / "kubeconfig"
            file.write_text(given, encoding="utf-8")
        with Cluster(file, context) as cluster:
            yield cluster


def reread(stacks: Stacks, name: str, urns: Sequence[str]) -> None:
    """Reads the present properties of resources without the program; raises ConsoleError if Pulumi fails."""
    targets = [f"--target={urn}" for urn in urns] if len(urns) <= _TARGETS else []
    seen = states.Seen(lambda _: None)
    try:
        stacks.operate(name, "refresh", "--run-program=false", *targets, on_event=seen)
    except OperationError as error:
        raise ConsoleError(f"pulumi refresh of stack {name} failed: {seen.errors or error.what}", RERUN) from error
