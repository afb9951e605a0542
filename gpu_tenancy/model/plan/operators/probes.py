"""Objects whose dry run succeeds when the webhooks of an operator are ready.

Kueue's and Volcano's webhooks validate their object. Trainer's webhook rejects a TrainJob whose runtime does not exist,
so its probe also waits for the runtimes, which a hook of the chart creates. LeaderWorkerSet's webhooks set defaults,
without which its controller fails. Other operators have no probe: KubeRay's chart has no webhooks; webhooks of
KEDA, Prometheus and the GPU operators of NVIDIA and AMD have `failurePolicy: Ignore`, or validate no object of this
project. cert-manager's webhooks fail closed, but its chart checks them in a hook that the release waits for
(https://github.com/cert-manager/cert-manager/blob/v1.21.1/pkg/util/cmapichecker/cmapichecker.go). Intel's webhooks
fail closed too and have no probe yet. External Secrets' webhook validates stores; its probe has the provider `fake`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Probe:
    """An object that is created as a dry run.

    Attributes:
        group: API group of its kind.
        resource: plural of its kind, as in roles.
        manifest: the object.
    """

    group: str
    resource: str
    manifest: Mapping[str, Any]


_NAME: Final = {"name": "gpu-tenancy-gate"}
_CONTAINER: Final = {"name": "gate", "image": "gate"}

PROBES: Final[Mapping[str, Probe]] = {
    "kueue": Probe(
        "kueue.x-k8s.io",
        "resourceflavors",
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": _NAME, "spec": {}},
    ),
    "volcano": Probe(
        "scheduling.volcano.sh",
        "queues",
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": _NAME, "spec": {"weight": 1}},
    ),
    "kubeflow-trainer": Probe(
        "trainer.kubeflow.org",
        "trainjobs",
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": _NAME,
            "spec": {"runtimeRef": {"name": "torch-distributed"}},
        },
    ),
    "lws": Probe(
        "leaderworkerset.x-k8s.io",
        "leaderworkersets",
        {
            "apiVersion": "leaderworkerset.x-k8s.io/v1",
            "kind": "LeaderWorkerSet",
            "metadata": _NAME,
            "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": [_CONTAINER]}}}},
        },
    ),
    "external-secrets": Probe(
        "external-secrets.io",
        "secretstores",
        {
            "apiVersion": "external-secrets.io/v1",
            "kind": "SecretStore",
            "metadata": _NAME,
            "spec": {"provider": {"fake": {"data": [{"key": "gate", "value": "gate"}]}}},
        },
    ),
}
"""Probes by the name of the release."""
