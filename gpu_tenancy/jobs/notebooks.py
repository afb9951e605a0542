"""Notebooks: offers of a team, and their StatefulSets, with the rights of a researcher.

A researcher may not read or create Secrets, and a guard denies pods with a Secret. So the container creates the token,
readable by users with the right to open a shell in it, who may also forward its port.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import Json, int_at, map_at, maps_at, text_at
from gpu_tenancy.base.problems import nearest
from gpu_tenancy.cluster.pods import Manifest, label, name_of
from gpu_tenancy.cluster.reading import State
from gpu_tenancy.jobs.submitting import Terms, Wish, placed
from gpu_tenancy.jobs.submitting import pod_of as pod_of_wish
from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.kube.errors import ApiError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.manifests.pods import container, pod_spec, queued
from gpu_tenancy.model.names import ACCOUNT, NOTEBOOK, NOTEBOOK_PORT, NOTEBOOK_TOKEN, NOTEBOOKS, USER
from gpu_tenancy.model.plan.datasets import STORAGE_GROUP
from gpu_tenancy.model.plan.notebooks import NotebooksOffer

STATEFUL_SET: Final = ("apps/v1", "StatefulSet")
_HOME: Final = "/home/notebook"
_PROGRAM: Final = "/opt/gpu-tenancy"
_COMMAND: Final = ("python3", f"{_PROGRAM}/notebook.py")
_HOST: Final = "NOTEBOOK_HOST"  # variable with the host of the stack's route
_LONGEST: Final = 50  # characters of a name, since labels have the name with a hash or number
# Kueue's messages until the pod and the Workload of a stopped notebook are deleted:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/statefulset/statefulset_webhook.go.
_STILL_STOPPING: Final = ("scaling down is still in progress", "scale-down is still being deleted")


@dataclass(frozen=True, slots=True)
class Choice:
    """A notebook as a person describes it."""

    name: str
    image: str = ""  # empty for the team's default
    size: str = ""  # name; empty for the team's default
    mounts: Mapping[str, str] | None = None  # paths by PersistentVolumeClaim, besides its home
    user: str = ""  # owner, as a label; empty for none


def offered(cluster: Cluster, team: str) -> NotebooksOffer:
    """Notebooks that the team may start; raises ConsoleError if there are none."""
    text = text_at(cluster.get("v1", "ConfigMap", NOTEBOOKS, team) or {}, "data", "notebooks.json")
    if not text:
        fix = f"ask the platform team to set teams.{team}.notebooks in the stack"
        raise ConsoleError(f"namespace {team}: no notebooks", fix)
    try:
        return TypeAdapter(NotebooksOffer).validate_json(text)
    except ValidationError as error:
        problem = f"ConfigMap {team}/{NOTEBOOKS}: is not of this version of `tenancy`"
        raise ConsoleError(problem, "use the version of the platform team") from error


def usual_name(user: str) -> str:
    """Default name of a user's notebook."""
    return re.sub(r"[^a-z0-9]+", "-", f"notebook-{user}".lower()).strip("-")[:_LONGEST].strip("-")


def found(cluster: Cluster, team: str, name: str) -> Manifest | None:
    """Reads a notebook; None if it does not exist. Raises ConsoleError for any other StatefulSet."""
    manifest = cluster.get(*STATEFUL_SET, name, team)
    if manifest and not label(manifest, NOTEBOOK):
        raise ConsoleError(f"StatefulSet {team}/{name}: is not a notebook", "set another name")
    return manifest


def existing(cluster: Cluster, team: str, name: str) -> Manifest:
    """Reads a notebook; raises ConsoleError if it does not exist."""
    if manifest := found(cluster, team, name):
        return manifest
    known = sorted(name_of(one) for one in cluster.list(*STATEFUL_SET, namespace=team, labels=NOTEBOOK))
    fix = nearest(name, known) if known else f"start it with `tenancy notebook start {name}`"
    raise ConsoleError(f"notebook {team}/{name}: not found", fix)


def runs(notebook: Manifest) -> bool:
    """Whether a notebook is started: running or pending."""
    return int_at(notebook, "spec", "replicas", otherwise=1) > 0


def host_of(notebook: Manifest) -> str:
    """Host of a notebook for browsers; empty without one."""
    (container, *_) = maps_at(notebook, "spec", "template", "spec", "containers")
    return next((text_at(one, "value") for one in maps_at(container, "env") if one.get("name") == _HOST), "")


def notebook_of(choice: Choice, team: str, offer: NotebooksOffer, state: State) -> dict[str, Any]:
    """The StatefulSet of a notebook, in the queue of the team; `state` has the kinds of `fit`.

    Raises ConsoleError if the team is not offered the image or the size, or the name is invalid.
    """
    if not re.fullmatch(rf"[a-z]([-a-z0-9]{{0,{_LONGEST - 2}}}[a-z0-9])?", choice.name):
        fix = f"use at most {_LONGEST} lowercase letters, digits and hyphens, and begin with a letter"
        raise ConsoleError(f"{choice.name}: is not a name of a notebook", fix)
    image, size = choice.image or offer.images[0], choice.size or next(iter(offer.sizes))
    if image not in offer.images:
        raise ConsoleError(f"image {image}: team {team} is not offered it", nearest(image, offer.images))
    if size not in offer.sizes:
        raise ConsoleError(f"size {size}: team {team} is not offered it", nearest(size, offer.sizes))
    of = offer.sizes[size]
    variables = {"HOME": _HOME, "NOTEBOOK_PORT": str(NOTEBOOK_PORT), "JUPYTER_TOKEN_FILE": NOTEBOOK_TOKEN}
    if host := offer.hosts.get(choice.name):
        variables[_HOST] = host
    wish = Wish(image, _COMMAND, env=variables, mounts=choice.mounts or {}, user=choice.user)
    wish = replace(wish, gpus=of.gpus, flavor=of.flavor, cpu=of.cpu, memory=of.memory)
    queue, place = placed(wish, team, state)
    own = {NOTEBOOK: choice.name, **({USER: choice.user} if choice.user else {})}
    plan = pod_of_wish(wish, place, team, state, Terms(restricted=True, account=ACCOUNT))
    plan = replace(plan, volumes=replace(plan.volumes, group=STORAGE_GROUP))
    base = container(plan, "notebook")
    kernel = {
        **base,
        "workingDir": _HOME,
        "volumeMounts": [
            {"name": "home", "mountPath": _HOME},
            {"name": "program", "mountPath": _PROGRAM, "readOnly": True},
            *base.get("volumeMounts", ()),
        ],
        # A pod that is idle is not ready: the CronJob of the platform stops it.
        "readinessProbe": {
            "exec": {"command": [*_COMMAND, "idle"]},
            "periodSeconds": 60,
            "timeoutSeconds": 30,
            "failureThreshold": 3,
        },
    }
    pod = pod_spec(plan, kernel)
    pod["volumes"] = [{"name": "program", "configMap": {"name": NOTEBOOKS}}, *pod.get("volumes", ())]
    home: dict[str, Json] = {
        "accessModes": [offer.home.access_mode],
        "resources": {"requests": {"storage": offer.home.size}},
        **({"storageClassName": offer.home.storage_class} if offer.home.storage_class else {}),
    }
    return {
        "apiVersion": STATEFUL_SET[0],
        "kind": STATEFUL_SET[1],
        "metadata": {"name": choice.name, "namespace": team, "labels": {**queued(queue, None), **own}},
        "spec": {
            "replicas": 1,
            "serviceName": choice.name,
            "selector": {"matchLabels": {NOTEBOOK: choice.name}},
            "template": {"metadata": {"labels": own}, "spec": pod},
            "volumeClaimTemplates": [{"metadata": {"name": "home", "labels": own}, "spec": home}],
        },
    }


def require_own_home(cluster: Cluster, team: str, choice: Choice) -> None:
    """Raises ConsoleError if the home of the notebook's name belongs to another user."""
    claim = cluster.get("v1", "PersistentVolumeClaim", f"home-{choice.name}-0", team)
    owner = label(claim, USER) if claim else ""
    if owner and choice.user and owner != choice.user:
        raise ConsoleError(f"notebook {team}/{choice.name}: its home is of {owner}", "set another name")


def scale(cluster: Cluster, notebook: Manifest, replicas: int) -> None:
    """Starts or stops a notebook; a start waits until a stopping notebook has stopped.

    Raises ApiError if the API server, a guard or Kueue rejects it, WaitTimeoutError if its pod does not end.
    """

    def done() -> bool:
        try:
            cluster.patch(Reference.of(notebook), {"spec": {"replicas": replicas}})
        except ApiError as error:
            if not any(words in str(error) for words in _STILL_STOPPING):
                raise
            return False
        return True

    cluster.wait_for(lambda: done() or None, timeout=60, poll=1, what="the pod of the notebook to end")


def pod_that_runs(cluster: Cluster, notebook: Manifest) -> str:
    """Name of the pod of a notebook; raises ConsoleError if it does not run."""
    team, name = (text_at(notebook, "metadata", key) for key in ("namespace", "name"))
    if not runs(notebook):
        raise ConsoleError(f"notebook {team}/{name}: is stopped", f"start it with `tenancy notebook start {name}`")
    pod = cluster.get("v1", "Pod", f"{name}-0", team) or {}
    phase = text_at(pod, "status", "phase") or "Pending"
    if phase != "Running":
        raise ConsoleError(f"notebook {team}/{name}: is {phase.lower()}", f"see `tenancy why {name} -n {team}`")
    return text_at(map_at(pod, "metadata"), "name")
