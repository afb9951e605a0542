"""Holds a team, a flavor or a pool of a running cluster for maintenance, and releases it, on demand or at a time.

A team is held by the `stopPolicy` of its ClusterQueue, a flavor by a taint in its `nodeTaints`: Kueue assigns it to no
pods without a toleration, and running pods are not affected. A pool is held by its flavor.
https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#stoppolicy,
https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/#resourceflavor-taints (read 2026-11-24)

A CronJob whose only right is to release the hold ends it. kubectl sends the JSON patch of `release`, which changes
nothing if the hold has changed, and deletes the ClusterRoleBinding that owns all of these objects. If no pod can start
at that minute, the release is delayed until one can.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, at, map_at, maps_at, text_at, texts_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.base.quantity import add, leading_text, parse_duration
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.cluster_queues import Hold, holds_of, moment_text
from gpu_tenancy.cluster.pods import Manifest, name_of, named
from gpu_tenancy.cluster.queues import Queues
from gpu_tenancy.cluster.reading import Kind, State
from gpu_tenancy.cluster.workloads import Workload
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import FIELD_MANAGER, HOLDING
from gpu_tenancy.kube.waiting import is_true
from gpu_tenancy.model.names import HOLD, KUBECTL, KUEUE

KINDS: Final[tuple[Kind, ...]] = (
    "ClusterQueue", "Cohort", "LocalQueue", "Namespace", "Node", "ResourceFlavor", "Workload",
)  # fmt: skip
_TEST_FAILED: Final = 422
_ANNOTATION: Final = "/metadata/annotations/" + HOLD.replace("/", "~1")
_RBAC: Final = "rbac.authorization.k8s.io"
_HOMES: Final = ("kueue-system", "kube-system")
_LONGEST: Final = timedelta(days=364)  # the schedule of a CronJob has no year


@dataclass(frozen=True, slots=True)
class Subject:
    """A ClusterQueue or ResourceFlavor to hold or release, with its workloads."""

    manifest: Manifest
    kind: str
    pending: tuple[Workload, ...]
    running: tuple[Workload, ...]

    @property
    def name(self) -> str:
        """Name of the object."""
        return name_of(self.manifest)

    @property
    def hold(self) -> Hold | None:
        """The present hold."""
        return Hold.of({**self.manifest, "kind": self.kind})

    def consequences(self, *, drain: bool) -> Iterator[str]:
        """Effects on pending and running workloads, for the confirmation."""
        yield f"pending, not admitted while it is held: {_counted(self.pending)}"
        yield f"running, {'evicted and pending again' if drain else 'not interrupted'}: {_counted(self.running)}"

    def held_by(self, user: str, until: datetime | None, *, drain: bool) -> Hold:
        """The hold to set; raises ConsoleError if the object is held already."""
        if self.hold:
            fix = f"release it first: `tenancy cluster release {self.name}`"
            raise ConsoleError(f"{self.name}: already {self.hold.text}", fix)
        since = datetime.now(UTC).replace(microsecond=0)
        end = until.isoformat() if until else ""
        bare = Hold(self.name, self.kind, user, since.isoformat(), end)
        before = at(self.manifest, *bare.path)
        if self.kind == "ClusterQueue":
            after: Json = "HoldAndDrain" if drain else "Hold"
        else:
            value = end[:16].replace(":", ".") if end else "held"
            after = [*maps_at(self.manifest, *bare.path), {"key": HOLD, "value": value, "effect": "NoSchedule"}]
        return replace(bare, before=before, after=after)


def find(state: State, name: str) -> Subject:
    """The ClusterQueue of a team, or the ResourceFlavor with a name or with a pool's nodes alone.

    `name`: namespace, ClusterQueue, ResourceFlavor, or value of a node label such as a pool's; the prefix
    `ClusterQueue/` or `ResourceFlavor/` selects a kind. Raises ConsoleError if the name is unknown or ambiguous, or a
    pool shares its flavor.
    """
    for missing in state.refused("ClusterQueue", "ResourceFlavor", "Workload", "LocalQueue"):
        raise ConsoleError(missing.text, "use the kubeconfig of an administrator")
    queues = Queues(state)
    kind, _, called = name.rpartition("/")
    flavors = {name_of(flavor) for flavor in state.of("ResourceFlavor")}
    of_team = set(queues.homes.get(called, {}).values()) or ({called} & queues.cluster_queues.keys())
    choices = [("ClusterQueue", queue) for queue in sorted(of_team)]
    choices += [("ResourceFlavor", flavor) for flavor in {called} & flavors]
    choices = [choice for choice in choices if kind.lower() in {"", choice[0].lower()}]
    if not choices and not kind:
        choices = [("ResourceFlavor", flavor) for flavor in _flavor_of_pool(queues, called)]
    if not choices:
        known = sorted({*queues.cluster_queues, *queues.homes, *flavors})
        raise ConsoleError(f"{name}: no team, flavor or pool has this name", nearest(called, known))
    if len(choices) > 1:
        listed = " or ".join("/".join(choice) for choice in choices)
        raise ConsoleError(f"{name}: several objects match", f"specify {listed}")
    return subject_of(queues, *choices[0])


def subject_of(queues: Queues, kind: str, name: str) -> Subject:
    """Reads an object that can be held, with its workloads."""

    def concerned(workload: Workload) -> bool:
        if kind == "ClusterQueue":
            return queues.holder_of(workload) == name
        queue = queues.cluster_queues.get(queues.queue_of(workload))
        offered = {flavor for flavor, _ in queue.spec.quotas} if queue else set[str]()
        return name in ({flavor for flavor, _ in workload.held} if workload.held else offered)

    own: Kind = "ClusterQueue" if kind == "ClusterQueue" else "ResourceFlavor"
    manifest = next(item for item in queues.state.of(own) if name_of(item) == name)
    pending = tuple(work for work in queues.workloads if work.stage == "waiting" and concerned(work))
    running = tuple(work for work in queues.workloads if work.stage in {"admitted", "checked"} and concerned(work))
    return Subject(manifest, kind, pending, running)


def _flavor_of_pool(queues: Queues, pool: str) -> list[str]:
    """The flavor of a pool; raises ConsoleError if it has other nodes too, or the pool has several flavors."""
    labels = {
        name_of(node): next((key for key, value in texts_at(node, "metadata", "labels").items() if value == pool), "")
        for node in queues.state.of("Node")
    }
    inside = {queues.flavor_by_node[node] for node, key in labels.items() if key and node in queues.flavor_by_node}
    outside = {queues.flavor_by_node[node] for node, key in labels.items() if not key and node in queues.flavor_by_node}
    if not inside:
        return []
    if len(inside) > 1 or inside & outside:
        key = next(key for key in labels.values() if key)
        raise ConsoleError(
            f"{pool}: Kueue holds whole flavors only, and its nodes are not those of one: {', '.join(sorted(inside))}",
            f"hold the flavor, or cordon the nodes, whose GPUs Kueue counts further: `kubectl cordon -l {key}={pool}`",
        )
    return sorted(inside)


def hold(cluster: Cluster, subject: Subject, held: Hold) -> None:
    """Holds an object; raises ConsoleError if it changed since it was read."""
    operations = _field(held, held.before, held.after)
    if not at(subject.manifest, "metadata", "annotations"):
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    operations.append({"op": "add", "path": _ANNOTATION, "value": held.annotation})
    _amend(cluster, subject, operations, HOLDING)


def releasing(held: Hold) -> list[dict[str, Json]]:
    """JSON patch that restores the field before a hold, if nobody changed it since."""
    return [
        {"op": "test", "path": _ANNOTATION, "value": held.annotation},
        *_field(held, held.after, held.before),
        {"op": "remove", "path": _ANNOTATION},
    ]


def release(cluster: Cluster, subject: Subject, held: Hold) -> None:
    """Restores the field before a hold, and deletes the objects that would do so at its end, if any.

    Raises ConsoleError and changes nothing if the field changed since.
    """
    # By another manager than the hold's, so that the next apply of a deployment can change the field again.
    _amend(cluster, subject, releasing(held))
    cluster.delete(Reference(f"{_RBAC}/v1", "ClusterRoleBinding", _name(held)), wait=0)


def _amend(
    cluster: Cluster, subject: Subject, operations: Sequence[dict[str, Json]], manager: str = FIELD_MANAGER
) -> None:
    try:
        cluster.amend(_served(cluster, Reference(KUEUE, subject.kind, subject.name)), operations, manager=manager)
    except ApiError as error:
        if error.status != _TEST_FAILED:
            raise
        field = ".".join(Hold(subject.name, subject.kind, "", "").path)
        problem = f"{subject.kind} {subject.name}: {field} was changed by others since it was read or held"
        raise ConsoleError(problem, f"set {field} by hand, and remove the annotation {HOLD}") from error


def _served(cluster: Cluster, reference: Reference) -> Reference:
    # v1beta1 for older versions of Kueue.
    return cluster.served(reference) or reference


def _field(held: Hold, expected: Json, wanted: Json) -> list[dict[str, Json]]:
    # None is a field that is not set.
    path = "/" + "/".join(held.path)
    test: list[dict[str, Json]] = [] if expected is None else [{"op": "test", "path": path, "value": expected}]
    change: dict[str, Json] = {"op": "add", "path": path, "value": wanted}
    return [*test, {"op": "remove", "path": path} if wanted is None else change]


def evict(cluster: Cluster, workloads: Sequence[Workload], *, timeout: float = 900) -> None:
    """Evicts workloads, which are then pending again: deactivates each, and activates it after the eviction.

    Raises WaitTimeoutError if Kueue does not evict one; it stays deactivated.
    """
    references = [_served(cluster, Reference(KUEUE, "Workload", work.name, work.namespace)) for work in workloads]
    for reference in references:
        cluster.patch(reference, {"spec": {"active": False}})
    for reference in references:

        def evicted(reference: Reference = reference) -> bool:
            live = cluster.get(*reference)
            return live is None or not is_true(live, "QuotaReserved")

        cluster.wait_for(evicted, timeout=timeout, what=f"{reference} to be evicted")
        if cluster.exists(*reference):
            cluster.patch(reference, {"spec": {"active": True}})


def all_holds(state: State) -> list[Hold]:
    """The holds of queues and flavors."""
    return [*holds_of(state.of("ClusterQueue")), *holds_of(state.of("ResourceFlavor"))]


def _counted(workloads: Sequence[Workload]) -> str:
    count = plural(len(workloads), "workload")
    if not workloads:
        return count
    pods = plural(sum(pods.count for work in workloads for pods in work.sets), "pod")
    names = [f"{work.label} ({leading_text(work.total)})" for work in workloads]
    return f"{count}, {pods}, {leading_text(add(*(work.total for work in workloads)))}: {named(names)}"


def moment(written: str, now: datetime) -> datetime:
    """A time, or a duration from now as in a stack, rounded up to a minute; UTC without a time zone.

    Raises ConsoleError if it is neither, is past, or more than 364 days away.
    """
    try:
        end = _after(written, now)
        end = (end.astimezone(UTC) + timedelta(seconds=59)).replace(second=0, microsecond=0)
    except (ValueError, OverflowError) as error:
        fix = "set one such as 90m, 4h, 2d or 2026-11-24T20:00Z"
        raise ConsoleError(f"--until {written}: not a time", fix) from error
    if not now < end <= now + _LONGEST:
        problem = f"{moment_text(end.isoformat())} is past or more than 364 days away"
        raise ConsoleError(f"--until {written}: {problem}", "set a time in the next 364 days")
    return end


def _after(written: str, now: datetime) -> datetime:
    try:
        return now + timedelta(seconds=parse_duration(written))
    except ValueError:
        end = datetime.fromisoformat(written)
        return end if end.tzinfo else end.replace(tzinfo=UTC)


def arrange(cluster: Cluster, hold: Hold) -> str:
    """Creates the objects that release a hold at its end; returns the namespace of the CronJob."""
    home = next((name for name in _HOMES if cluster.exists("v1", "Namespace", name)), _HOMES[-1])
    binding, *owned = ending(hold, home)
    uid = text_at(cluster.apply(binding), "metadata", "uid")
    owner: Json = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "name": _name(hold), "uid": uid}
    for manifest in owned:
        cluster.apply({**manifest, "metadata": {**map_at(manifest, "metadata"), "ownerReferences": [owner]}})
    return home


def ending(hold: Hold, home: str) -> tuple[dict[str, Json], ...]:
    """The ClusterRoleBinding, and the objects that it owns: ClusterRole, ServiceAccount and CronJob."""
    name, resource = _name(hold), f"{hold.kind.lower()}s"
    metadata: dict[str, Json] = {"name": name, "labels": {"app.kubernetes.io/managed-by": "gpu-tenancy"}}
    within: dict[str, Json] = {**metadata, "namespace": home}
    rules: list[Json] = [
        _rule("kueue.x-k8s.io", resource, "patch", hold.name),
        _rule(_RBAC, "clusterrolebindings", "delete", name),
    ]
    patch = ("patch", f"{resource}.kueue.x-k8s.io", hold.name, "--type=json", f"--field-manager={FIELD_MANAGER}")
    pod: dict[str, Json] = {
        "serviceAccountName": name,
        "restartPolicy": "OnFailure",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [_kubectl("release", *patch, f"--patch={json.dumps(releasing(hold))}")],
        "containers": [_kubectl("tidy", "delete", "clusterrolebinding", name, "--wait=false")],
    }
    end = datetime.fromisoformat(hold.until).astimezone(UTC)
    spec: dict[str, Json] = {
        "schedule": f"{end.minute} {end.hour} {end.day} {end.month} *",
        "timeZone": "Etc/UTC",
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {"spec": {"template": {"spec": pod}}},
    }
    subject: Json = {"kind": "ServiceAccount", "name": name, "namespace": home}
    return (
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": within},
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": within, "spec": spec},
    )


def _name(hold: Hold) -> str:
    # At most 52 characters: https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/.
    return f"gpu-tenancy-release-{sha256(f'{hold.kind}/{hold.name}'.encode()).hexdigest()[:10]}"


def _rule(group: str, resource: str, verb: str, name: str) -> dict[str, Json]:
    return {"apiGroups": [group], "resources": [resource], "verbs": ["get", verb], "resourceNames": [name]}


def _kubectl(name: str, *arguments: str) -> dict[str, Json]:
    amounts: Json = {"cpu": "50m", "memory": "64Mi"}
    return {
        "name": name,
        "image": KUBECTL,
        "args": [*arguments],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - of the pod, where kubectl keeps what it discovers
        "resources": {"requests": amounts, "limits": {"cpu": "1", "memory": "128Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
