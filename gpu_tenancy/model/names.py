"""Names of kinds, labels and objects that several packages share; they need no stack."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from gpu_tenancy.base.quantity import CHANNELS, INTERFACES

Runtime: TypeAlias = Literal["job", "pytorch", "jax", "ray"]
"""Frameworks whose jobs `tenancy submit` writes; all pods of a job are alike."""
Launched: TypeAlias = Literal["mpi", "deepspeed"]  # frameworks with a launcher beside their workers
NO_LAUNCHER: Final = (
    "a TrainJob sets image and resources of the launcher only; those of its workers are in a TrainingRuntime, which"
    " researchers may not create"
)
"""Reason why researchers cannot submit such jobs: `Trainer` and `ContainerPatch` have no fields for the workers
(https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/builder.go), and the SSH keys
would be a Secret."""
COMPUTE_DOMAINS: Final = "resource.nvidia.com"  # API group of ComputeDomains
COMPUTE_DOMAIN: Final = (f"{COMPUTE_DOMAINS}/v1beta1", "ComputeDomain")  # API version and kind
CHANNEL_CLASS: Final = "compute-domain-default-channel.nvidia.com"
"""DeviceClass of the channel of a node:
https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/tree/v0.4.1/deployments/helm/dra-driver-nvidia-gpu/templates.
"""
INTERFACE_CLASS: Final = "mrdma.google.com"
"""DeviceClass of the RDMA interfaces of a node, which GKE creates:
https://docs.cloud.google.com/kubernetes-engine/docs/how-to/allocate-network-resources-dra."""
CLAIM_CLASSES: Final = {CHANNELS: CHANNEL_CLASS, INTERFACES: INTERFACE_CLASS}
"""DeviceClass of each resource that Kueue counts by claims."""
DEFAULT_GRACE: Final = 30
"""Default grace period of a pod in seconds: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/."""
NODE: Final = "node"
"""Name of the replicated job and of its container, by which Trainer finds the pods that train:
https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/constants/constants.go."""
TRAINER_STEP: Final = ("trainer.kubeflow.org/trainjob-ancestor-step", "trainer")
"""Label of the replicated job to which a TrainJob's image, command and resources apply."""
KUEUE: Final = "kueue.x-k8s.io/v1beta2"  # API version of Kueue's objects; v1beta1 is deprecated
VOLCANO: Final = "scheduling.volcano.sh/v1beta1"
RAY_JOB: Final = ("ray.io/v1", "RayJob")
STACK: Final = "gpu-tenancy.dev/stack"
"""Annotation of the root Cohort, with the name of its stack. Every reader of quota can read it."""
DEPLOYED_BY: Final = "gpu-tenancy.dev/deployed-by"
"""Annotation with `deployed_by` of each object that Pulumi deploys: only these are imported into a state again."""
_FORCE: Final = "pulumi.com/patchForce"
"""Annotation by which Pulumi's provider takes back fields that others set; else its server-side apply has a conflict:
https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply/."""
HOLD: Final = "gpu-tenancy.dev/hold"
"""Annotation of a held ClusterQueue or ResourceFlavor, with the holder's name, and taint key of a held flavor."""
IDLE: Final = "gpu-tenancy.dev/idle"
"""Annotation of a Workload whose GPUs are idle (`since TIME, requeue at TIME`), or that was stopped for it."""
USER: Final = "gpu-tenancy.dev/user"  # label of a job with its user, which Kueue copies to its Workload
WRITTEN_BY_KUEUE: Final = tuple(
    f"kueue.x-k8s.io/{name}"
    for name in ("cluster-queue-name", "job-uid", "local-queue-name", "podset", "workload", "workload-slice-name")
)
"""Labels and annotations that Kueue writes into what it starts (`getPodSetsInfoFromStatus`):
https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go."""
ACCOUNT: Final = "workload"  # service account of all workloads of a team, which pulls images with the team's Secrets
NOTEBOOK: Final = "gpu-tenancy.dev/notebook"  # label of a notebook, its pod and its home, with the notebook's name
NOTEBOOKS: Final = "notebooks"  # ConfigMap of a team with its offer of notebooks and their program
NOTEBOOK_PORT: Final = 8888  # port on which JupyterLab listens, on the loopback of its pod
NOTEBOOK_TOKEN: Final = "/tmp/notebook-token"  # noqa: S105, S108 - where it is, in the container
KUBECTL: Final = (
    "registry.k8s.io/kubectl:v1.34.1@sha256:59bafa07ff3a6d4b417e7633ddb9d79a9606ca98bf64bac080b3e65748669250"
)
"""Image of Jobs of the platform itself. It has no shell: https://github.com/kubernetes/release.
The digest is in image files of several public repositories, which agree (read on 2026-11-22)."""
UNREAD: Final = "unread-secret"  # placeholder for a secret, if a stack is read without Pulumi to decrypt it


def deployed_by(project: str, environment: str) -> str:
    """The value of the annotation `DEPLOYED_BY` for an environment."""
    return f"{project}/{environment}"


def with_marks(kind: str, metadata: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """The metadata of an object as Pulumi deploys it; `mark` is the `deployed_by` of its environment."""
    # A deployment does not take the taint of a held flavor away: it has a conflict instead.
    forced = {} if kind == "ResourceFlavor" else {_FORCE: "true"}
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), **forced, DEPLOYED_BY: mark}}


def adoptable(api_version: str, kind: str, namespace: str, name: str) -> str:
    """The name by which a stack adopts an object, without its version: `Namespace/ml` or `Job.batch/ml/train`."""
    group = api_version.rpartition("/")[0]
    return "/".join(part for part in (f"{kind}.{group}" if group else kind, namespace, name) if part)


BUCKET: Final = "gpu-tenancy.dev/bucket"
"""Annotation of a dataset's claim, with the bucket's URL: members of teams cannot read PersistentVolumes."""

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Label that sends a workload through a LocalQueue: https://kueue.sigs.k8s.io/docs/reference/labels-and-annotations/"""
PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"  # label with a workload's WorkloadPriorityClass
GROUP_MINIMUM: Final = "scheduling.volcano.sh/group-min-member"
"""Annotation of a Job that Volcano schedules: the minimum number of pods that must fit before any of them starts.
Volcano's podgroup controller reads it: https://github.com/volcano-sh/volcano/tree/master/pkg/controllers/podgroup."""
EMBEDDED_CONTEXT: Final = "gpu-tenancy-embedded"
"""Name of the cluster and the context in every kubeconfig of the embedded platform."""

UNCOVERED: Final = ("ephemeral-storage", "hugepages-", "networking.gke.io.networks/", "rdma/", "vpc.amazonaws.com/efa")
"""Prefixes of resources that no queue covers. Kueue never admits a workload that requests a resource which is neither
covered nor excluded ("resource … unavailable"). Networks between GPUs need no quota, because they belong to machines
whose GPUs have one."""
