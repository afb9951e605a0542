"""Rollouts of a server under the real Kueue: they complete while the quota is used up, and keep the minimum."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from builders import Data, pool, server, stack, team
from queueing import Queueing

from gpu_tenancy.base.json import at, maps_at, text_at
from gpu_tenancy.cluster.demand import target_of
from gpu_tenancy.cluster.reading import read
from gpu_tenancy.explain.why import KINDS, OWN, why
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.kube.waiting import is_true

TEAM: Final = "rollouts"
APPLIED: Final = (
    "Namespace", "ServiceAccount", "ResourceQuota", "LimitRange", "ResourceFlavor", "Cohort", "ClusterQueue",
    "LocalQueue", "Service", "PodDisruptionBudget", "Deployment", "HorizontalPodAutoscaler",
)  # fmt: skip
PATIENCE: Final = 90
REMOVES_FIRST: Final = "or set maxUnavailable: 1, so that an old pod is removed first"
# Quota for four replicas with a node each.
SECTIONS: Final[Data] = stack(
    guards="deny",
    pools={"h100": pool(nodes=4)},
    teams={
        TEAM: team(gpus={"h100": {"guaranteed": 32}}, serving={"chat": server(gpus=8, replicas={"min": 3, "max": 4})})
    },
)


@dataclass
class Served:
    """The stack on the platform; `least` is the minimum of available replicas since it was set."""

    cluster: Cluster
    objects: dict[str, Manifest]
    least: int = field(default=0)

    @property
    def reference(self) -> Reference:
        return Reference.of(self.objects["Deployment"])

    def pods(self) -> list[Manifest]:
        return list(self.cluster.list("v1", "Pod", namespace=TEAM, labels="app.kubernetes.io/name=chat"))

    def available(self) -> list[str]:
        """Images of the available pods."""
        ready = [pod for pod in self.pods() if not at(pod, "metadata", "deletionTimestamp") and is_true(pod, "Ready")]
        self.least = min(self.least, len(ready))
        return [text_at(maps_at(pod, "spec", "containers")[0], "image") for pod in ready]

    def wait(self, replicas: int, image: str) -> None:
        what = f"{replicas} available replicas of {image}"
        self.cluster.wait_for(lambda: self.available() == [image] * replicas, timeout=PATIENCE, what=what)

    def scale(self, replicas: int) -> None:
        """Sets the number of replicas by the autoscaler, without any metric."""
        minimum: Any = {"spec": {"minReplicas": replicas}}
        self.cluster.patch(Reference.of(self.objects["HorizontalPodAutoscaler"]), minimum)
        self.cluster.patch(self.reference, {"spec": {"replicas": replicas}})

    def roll(self, image: str, **strategy: Any) -> None:
        changed: Any = deepcopy(self.objects["Deployment"])
        changed["spec"]["template"]["spec"]["containers"][0]["image"] = image
        changed["spec"]["strategy"]["rollingUpdate"].update(strategy)
        self.cluster.apply(changed)

    def budget(self, gpus: str) -> None:
        hard: Any = {"requests.nvidia.com/gpu": gpus}
        self.cluster.patch(Reference.of(self.objects["ResourceQuota"]), {"spec": {"hard": hard}})

    def why(self) -> str:
        state = read(self.cluster, KINDS, TEAM, only=OWN)
        return why(target_of(self.cluster.get(*self.reference) or {}, state), state).conclusion

    def answers(self, cause: str) -> None:
        start = f"rollout not complete, 4 replicas serve: {cause}"
        self.cluster.wait_for(lambda: self.why().startswith(start), timeout=PATIENCE, what=start)


@pytest.fixture(scope="module")
def served(queueing: Queueing) -> Iterator[Served]:
    with queueing.deployed(SECTIONS, TEAM, APPLIED) as made:
        yield Served(queueing.cluster, {str(one["kind"]): one for one in made})


@pytest.mark.parametrize(
    ("replicas", "before", "after"),
    [(4, "1.0", "2.0"), (3, "2.0", "1.0")],
    ids=["the quota is used up, so that one replica is removed first", "at the minimum, one is added first"],
)
def test_a_rollout_completes_and_keeps_the_minimum(served: Served, replicas: int, before: str, after: str) -> None:
    served.scale(replicas)
    served.wait(replicas, f"registry.example.com/serve:{before}")
    served.least = replicas
    served.roll(f"registry.example.com/serve:{after}")
    served.wait(replicas, f"registry.example.com/serve:{after}")
    assert served.least == 3


def test_a_rollout_that_only_adds_replicas_waits_at_full_quota(served: Served) -> None:
    """The bounds of the stack prevent this: the new pod is pending, and rejected if the ResourceQuota is used up."""
    served.scale(4)
    served.wait(4, "registry.example.com/serve:1.0")
    served.roll("registry.example.com/serve:3.0", maxUnavailable=0)
    try:
        served.answers("queue rollouts is at its limit: 32 of 32 h100 GPUs in use; ")
        assert REMOVES_FIRST in served.why()
        served.budget("32")
        (pending,) = (pod for pod in served.pods() if not at(pod, "spec", "nodeName"))
        served.cluster.delete(Reference.of(pending))
        served.answers("new pods are rejected: ResourceQuota budget has ")
        assert REMOVES_FIRST in served.why()
    finally:
        served.budget("40")
        served.roll("registry.example.com/serve:1.0")
    served.wait(4, "registry.example.com/serve:1.0")
