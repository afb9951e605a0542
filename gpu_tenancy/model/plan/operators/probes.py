"""What the operators' webhooks are asked before anything else is: one object each, that they must let pass.

Kueue's and Volcano's webhooks judge what they are asked; Trainer's refuses a job of a runtime that is not there, so its
object waits for the runtimes too, which a hook of the chart makes. Webhooks of KEDA, Prometheus and the GPU operators
of NVIDIA and AMD let pass what they cannot judge yet (`failurePolicy: Ignore`), or judge nothing that is made here.
cert-manager's fail closed, but its chart asks them itself, in a hook that the release waits for
(https://github.com/cert-manager/cert-manager/blob/v1.21.1/pkg/util/cmapichecker/cmapichecker.go). Intel's, which fail
closed too, are not asked yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Probe:
    """One object that is created as a dry run.

    Attributes:
        group: API group of its kind.
        resource: plural of its kind, as roles name it.
        manifest: the object.
    """

    group: str
    resource: str
    manifest: Mapping[str, Any]


_NAME: Final = {"name": "gpu-tenancy-gate"}

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
}
"""By the name of the release."""
