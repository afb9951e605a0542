"""How a hold ends by itself: a CronJob whose only right is to release it.

At its minute, kubectl sends the JSON patch of `release`, which changes nothing if the hold is not the same any more,
and then deletes the ClusterRoleBinding that owns all of these objects. It runs when the cluster can run a pod: if none
can start at that minute, as soon as one can.
"""

import json
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, map_at, text_at
from gpu_tenancy.base.quantity import parse_duration
from gpu_tenancy.cluster.holds import Hold, moment_text
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import FIELD_MANAGER
from gpu_tenancy.maintenance.holding import releasing
from gpu_tenancy.model.names import KUBECTL

_RBAC: Final = "rbac.authorization.k8s.io"
_HOMES: Final = ("kueue-system", "kube-system")
_LONGEST: Final = timedelta(days=364)
"""The schedule of a CronJob has no year."""


def moment(written: str, now: datetime) -> datetime:
    """A time, or a duration from now as in a stack; up to the next minute. A time without zone is in UTC.

    Raises:
        ConsoleError: it is neither, is past, or more than 364 days away.
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
    """Creates what releases a hold at its end, and returns the namespace of the CronJob."""
    home = next((name for name in _HOMES if cluster.exists("v1", "Namespace", name)), _HOMES[-1])
    binding, *owned = ending(hold, home)
    uid = text_at(cluster.apply(binding), "metadata", "uid")
    owner: Json = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "name": _name(hold), "uid": uid}
    for manifest in owned:
        cluster.apply({**manifest, "metadata": {**map_at(manifest, "metadata"), "ownerReferences": [owner]}})
    return home


def dismiss(cluster: Cluster, hold: Hold) -> None:
    """Deletes what would release a hold at its end; nothing if there is none."""
    cluster.delete(Reference(f"{_RBAC}/v1", "ClusterRoleBinding", _name(hold)), wait=0)


def ending(hold: Hold, home: str) -> tuple[Manifest, ...]:
    """The ClusterRoleBinding, and the objects that it owns: ClusterRole, ServiceAccount and CronJob."""
    name, resource = _name(hold), f"{hold.kind.lower()}s"
    metadata: Manifest = {"name": name, "labels": {"app.kubernetes.io/managed-by": "gpu-tenancy"}}
    within: Manifest = {**metadata, "namespace": home}
    rules: list[Json] = [
        _rule("kueue.x-k8s.io", resource, "patch", hold.name),
        _rule(_RBAC, "clusterrolebindings", "delete", name),
    ]
    patch = ("patch", f"{resource}.kueue.x-k8s.io", hold.name, "--type=json", f"--field-manager={FIELD_MANAGER}")
    pod: Manifest = {
        "serviceAccountName": name,
        "restartPolicy": "OnFailure",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [_kubectl("release", *patch, f"--patch={json.dumps(releasing(hold))}")],
        "containers": [_kubectl("tidy", "delete", "clusterrolebinding", name, "--wait=false")],
    }
    end = datetime.fromisoformat(hold.until).astimezone(UTC)
    spec: Manifest = {
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
    """At most 52 characters, as names of CronJobs: https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/."""
    return f"gpu-tenancy-release-{sha256(f'{hold.kind}/{hold.name}'.encode()).hexdigest()[:10]}"


def _rule(group: str, resource: str, verb: str, name: str) -> Manifest:
    return {"apiGroups": [group], "resources": [resource], "verbs": ["get", verb], "resourceNames": [name]}


def _kubectl(name: str, *arguments: str) -> Manifest:
    amounts: Manifest = {"cpu": "50m", "memory": "64Mi"}
    return {
        "name": name,
        "image": KUBECTL,
        "args": [*arguments],
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108 - of the pod, where kubectl keeps what it discovers
        "resources": {"requests": amounts, "limits": {"cpu": "1", "memory": "128Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
