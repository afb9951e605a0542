"""Check that a server's autoscaler works: simulated measurements, the real metrics-server and the real autoscaler.

kwok reports the usage in a pod's annotation, metrics-server reads it from kwok as from a kubelet, this command serves
the other metrics of pods, and kube-controller-manager scales the workload.
"""

import json
import math
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, cast

from gpu_tenancy.base.json import Json, at, maps_at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.quantity import CPU, amount_text
from gpu_tenancy.cluster.pods import deleted
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import ApiError, WaitTimeoutError
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.request import FIELD_MANAGER
from gpu_tenancy.kube.waiting import condition
from gpu_tenancy.local.checks.check import Check
from gpu_tenancy.local.checks.metrics import simulated
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.workloads import Scaling, ServerPlan

USAGE: Final = "kwok.x-k8s.io/usage-cpu"
"""CPU of each container of a pod. Without this annotation, kwok reports a tenth of the requests."""

# Annotation: the earlier state of a changed object, for a later run if this one is killed.
BEFORE: Final = "gpu-tenancy.dev/before-check"

PATIENCE: Final = 90.0  # seconds for each step; metrics-server measures every 10 s, and new pods after 10 to 20 s

_HPA: Final = ("autoscaling/v2", "HorizontalPodAutoscaler")
# A multiple of the load at the target with the maximum number of pods, so that only the maximum stops it.
_OVERLOAD: Final = 1.25
_IDLE: Final = 1  # thousandths of a CPU of an idle pod: less than any target
_POLL: Final = 0.5
_THOUSAND: Final = 1000


def check_scaling(cluster: Cluster, plan: Plan, report: Report, missing: str = "", keda: str = "") -> Iterator[Check]:
    """Checks that the autoscaler of one server grows it under load up to its maximum, and shrinks it again.

    It is the server whose maximum is nearest. Its autoscaler has other settings during the check, because its own would
    take more than ten minutes to remove six pods: no stabilization windows, and all pods in one step. Metrics, targets,
    minimum and maximum are its own: each metric asks for the maximum in turn, while the others ask for less. The load
    can exceed the CPU limits of the first pods: at their limits, each measurement could add only some pods.

    Without a server that scales on CPU by a HorizontalPodAutoscaler, all servers are reported as not checked. `missing`
    is why metrics-server does not run, without which nothing is checked, `keda` why KEDA does not; empty if they do.
    Raises ApiError if the API server rejects a change of the autoscaler.
    """
    servers = [server for team in plan.teams for server in team.servers if _adds(server)]
    # One that KEDA scales has no HorizontalPodAutoscaler without KEDA.
    scaled = (server for server in servers if cluster.exists(*_HPA, server.name, server.team))
    server, served = min(scaled, key=_adds, default=None), set[str]()
    if server and server.scaling and missing:
        yield Check(_promise(server, server.scaling, "load"), missing, holds=None)
    elif server and server.scaling:
        report(f"verifying the autoscaler of {server.team}/{server.name} under simulated load (about a minute)")
        with (
            simulated(cluster, targets(server.scaling)) as metrics,
            simplified(cluster, Reference(*_HPA, server.name, server.team), _adds(server), metrics) as others,
        ):
            served.update(metrics)
            run = _Run(cluster, server, metrics)
            try:
                yield from _checks(run, server.scaling, others)
            finally:
                run.restore()
    yield from _unchecked(plan, keda, f"{server.team}/{server.name}" if server else "", served)


def _unchecked(plan: Plan, keda: str, checked: str, served: Collection[str]) -> Iterator[Check]:
    """Reports the servers whose autoscaler has a metric that is not in `served`, the checked ones."""
    scaled: dict[tuple[str, str], list[str]] = {}
    for server in (server for team in plan.teams for server in team.servers):
        scaling = server.scaling
        for metric in targets(scaling) if scaling else ():
            if scaling and scaling.by_keda:
                reason = keda
            elif metric not in served:
                reason = f"only the metrics of {checked} were simulated" if served else f"nothing serves {metric} here"
            else:
                continue
            scaled.setdefault((metric, reason), []).append(f"{server.team}/{server.name}")
    for (metric, reason), servers in scaled.items():
        yield Check(f"{', '.join(servers)}: the autoscaler follows {metric}", reason, holds=None)


def targets(scaling: Scaling) -> dict[str, float]:
    """Targets of the autoscaler's metrics of pods."""
    latency = dict([scaling.latency]) if scaling.latency else {}
    return latency | {signal.name: signal.target for signal in scaling.signals}


def _adds(server: ServerPlan) -> int:
    scaling = server.scaling
    return scaling.maximum - scaling.minimum if scaling and scaling.cpu else 0


@dataclass(frozen=True)
class _Load:
    """The load of a server's pods: `cpu` of all, `values` of metrics of each pod (0 for others), in thousandths."""

    name: str = ""
    text: str = ""
    cpu: int = 0
    values: Mapping[str, int] = field(default_factory=dict[str, int])


_NONE: Final = _Load()


def _checks(run: "_Run", scaling: Scaling, others: tuple[str, ...]) -> Iterator[Check]:
    load = math.ceil(run.server.pod.amounts[CPU] * scaling.maximum * (scaling.cpu or 0) / 100 * _OVERLOAD)
    loads = [_Load("load", f"{amount_text(CPU, load)} CPUs of simulated load", load)]
    for name, target in targets(scaling).items():
        if name in run.metrics:
            value = math.ceil(_THOUSAND * target * scaling.maximum * _OVERLOAD)
            text = f"simulated {name} of {value / _THOUSAND:g}, target {target:g}"
            loads.append(_Load(f"a high {name}", text, values={name: value}))
    ignored = f" and without {', '.join(others)}, which nothing serves here" if others else ""
    check: Check | None = None
    for one in loads:
        if check and not check.holds:
            yield Check(_promise(run.server, scaling, one.name), "the check before it failed", holds=None)
        else:
            check = _check(run, scaling, one, f"checked without stabilization windows{ignored}")
            yield check


def _check(run: "_Run", scaling: Scaling, load: _Load, how: str) -> Check:
    # A metric that nothing serves may have kept pods of an earlier load.
    grown = run.settle(_NONE, scaling.minimum) and run.settle(load, scaling.maximum)
    seen, message = [f"{load.text}: {run.path} pods"], run.autoscaler(grown=grown)
    shrunk = grown and run.settle(_NONE, scaling.minimum)
    if grown:
        seen.append(f"without load: {run.path} pods")
        message = message if shrunk else run.autoscaler(grown=False)
    promise = _promise(run.server, scaling, load.name)
    return Check(promise, "; ".join((*seen, how)), holds=grown and shrunk, message=message)


def _promise(server: ServerPlan, scaling: Scaling, under: str) -> str:
    return f"{server.team}/{server.name} grows under {under} to its limit of {scaling.maximum} pods and shrinks again"


@dataclass
class _Run:
    """A server under load; `counts` are the autoscaler's numbers of pods, the first one before the load changed."""

    cluster: Cluster
    server: ServerPlan
    metrics: dict[str, int]
    counts: list[int] = field(default_factory=list[int])

    def settle(self, load: _Load, pods: int) -> bool:
        """Has the pods measure a load until the given number runs; returns whether it ran in time."""
        del self.counts[:-1]
        self.metrics.update({name: load.values.get(name, 0) for name in self.metrics})
        what = f"{self.server.team}/{self.server.name} to have {pods} pods"
        try:
            return self.cluster.wait_for(lambda: self._step(load.cpu, pods), what=what, timeout=PATIENCE, poll=_POLL)
        except WaitTimeoutError:
            return False

    def _step(self, load: int, pods: int) -> bool:
        workload = self.cluster.get(*self.server.api, self.server.name, self.server.team) or {}
        wanted, ready = at(workload, "spec", "replicas"), at(workload, "status", "readyReplicas")
        if isinstance(wanted, int) and self.counts[-1:] != [wanted]:
            self.counts.append(wanted)
        there = self._pods()
        running = [pod for pod in there if not deleted(pod)]
        for pod in running:
            cpu, used = f"{max(load // len(running), _IDLE)}m", text_at(pod, "metadata", "annotations", USAGE)
            if used != cpu:
                first = at(pod, "metadata", "annotations", BEFORE) is None
                _annotate(self.cluster, pod, {USAGE: cpu, **({BEFORE: used} if first else {})})
        # Pods that are being deleted hold their quota still.
        return wanted == ready == len(running) == len(there) == pods

    def _pods(self) -> tuple[Manifest, ...]:
        """The pods that the autoscaler measures: of groups the leaders."""
        of_leaders = ",app.kubernetes.io/component=leader" if self.server.worker else ""
        labels = f"app.kubernetes.io/name={self.server.name}{of_leaders}"
        return self.cluster.list("v1", "Pod", namespace=self.server.team, labels=labels)

    @property
    def path(self) -> str:
        """`2 → 8`."""
        return " → ".join(str(count) for count in self.counts)

    def autoscaler(self, *, grown: bool) -> str:
        """The autoscaler's reason: why it adds no more pods, else why it does not scale."""
        scaler = self.cluster.get(*_HPA, self.server.name, self.server.team) or {}
        kinds = ("ScalingLimited",) if grown else ("ScalingActive", "AbleToScale", "ScalingLimited")
        words = [text_at(condition(scaler, kind), "message") for kind in kinds]
        return ", ".join(f"“{message}”" for message in words if message) or "the autoscaler has not reported yet"

    def restore(self) -> None:
        for pod in self._pods():
            before = at(pod, "metadata", "annotations", BEFORE)
            if isinstance(before, str):
                _annotate(self.cluster, pod, {USAGE: before or None, BEFORE: None})


def _annotate(cluster: Cluster, pod: Manifest, annotations: dict[str, Json]) -> None:
    with suppress(ApiError):  # The pod can be gone by now.
        cluster.patch(Reference.of(pod), {"metadata": {"annotations": annotations}})


@contextmanager
def simplified(
    cluster: Cluster, scaler: Reference, step: int, served: Collection[str] = ()
) -> Generator[tuple[str, ...]]:
    """Has an autoscaler add and remove `step` pods in 15 s, by CPU and the `served` metrics; yields its other metrics.

    A metric that nothing serves blocks every removal of pods, so the others are left out. The engine that deployed the
    autoscaler owns its fields again afterwards: otherwise its next run would find a conflict. Raises ApiError if the
    autoscaler does not exist.
    """
    policies: Json = [{"type": "Pods", "value": step, "periodSeconds": 15}]
    at_once: Json = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": policies}
    simple: Json = {"scaleUp": at_once, "scaleDown": at_once}
    before = _settings(cluster.get(*scaler) or {}, simple)
    metrics = maps_at(before, "metrics")
    try:
        annotation: Json = {"annotations": {BEFORE: json.dumps(before)}}
        kept = {CPU, *served}
        own: list[Json] = [dict(metric) for metric in metrics if _metric_name(metric) in kept]
        changed = cluster.patch(scaler, {"metadata": annotation, "spec": {"behavior": simple, "metrics": own}})
        # If this process is killed, the next deployment must find no conflict with it: a client that patches.
        owners = maps_at(changed, "metadata", "managedFields")
        others: list[Json] = [
            dict(one) for one in owners if (one["manager"], one["operation"]) != (FIELD_MANAGER, "Update")
        ]
        cluster.patch(scaler, {"metadata": {"managedFields": others}})
        yield tuple(name for metric in metrics if (name := _metric_name(metric)) not in kept)
    finally:
        spec: Json = {"behavior": before["behavior"], "metrics": before["metrics"]}
        cluster.patch(scaler, {"metadata": {"annotations": {BEFORE: None}}, "spec": spec})
        # Only without other changes is this list kept as it is.
        cluster.patch(scaler, {"metadata": {"managedFields": before["managedFields"]}})


def _settings(scaler: Manifest, simple: Json) -> Manifest:
    """The settings to restore: the present settings, or those before a run that was killed."""
    left = text_at(scaler, "metadata", "annotations", BEFORE)
    if left and at(scaler, "spec", "behavior") == simple:
        return cast("Manifest", json.loads(left))
    spec: Manifest = {key: at(scaler, "spec", key) for key in ("behavior", "metrics")}
    return {**spec, "managedFields": at(scaler, "metadata", "managedFields")}


def _metric_name(metric: Mapping[str, Json]) -> str:
    return text_at(metric, "pods", "metric", "name") or text_at(metric, "resource", "name") or text_at(metric, "type")
