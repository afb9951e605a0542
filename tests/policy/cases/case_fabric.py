"""Cases for `workload_rules.fabric`."""

from typing import Any, Final

from policy_builders import GONE, Break, Case, manifest

from workload_rules import fabric

JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  parallelism: 4
  template:
    spec:
      nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 32}}}]
""")
GANG: Final = manifest("""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: gang, namespace: ml-research}
spec:
  tasks:
  - name: worker
    replicas: 2
    template:
      spec:
        nodeSelector: {node.kubernetes.io/instance-type: Standard_ND96isr_H100_v5}
        containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8, rdma/ib: 8}}}]
""")
SET: Final = manifest("""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: ml-research}
spec:
  replicatedJobs:
  - name: workers
    replicas: 2
    template:
      spec:
        template:
          metadata: {annotations: {networking.gke.io/interfaces: "[]"}}
          spec:
            affinity:
              nodeAffinity:
                requiredDuringSchedulingIgnoredDuringExecution:
                  nodeSelectorTerms:
                  - matchExpressions:
                    - {key: cloud.google.com/gke-accelerator, operator: In, values: [nvidia-h200-141gb, nvidia-b200]}
            containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
""")
TRAIN: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: finetune, namespace: ml-research}
spec:
  trainer: {numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}}}
  runtimePatches:
  - trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          - name: node
            template: {spec: {template: {spec: {nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}}}}}
""")
CLAIM: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: claim, namespace: ml-research}
spec:
  parallelism: 2
  template:
    spec:
      nodeSelector: {node.kubernetes.io/instance-type: a4-highgpu-8g}
      resourceClaims: [{name: rdma, resourceClaimTemplateName: all-mrdma}]
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
""")
_TYPE: Final = "node.kubernetes.io/instance-type"
_GPUS: Final = {"limits": {"nvidia.com/gpu": 8}}
_PATCHED: Final = "spec.runtimePatches.0.trainingRuntimeSpec.template.spec.replicatedJobs.0.template.spec.template"
_ATTACHED: Final[dict[str, Any]] = {
    "metadata": {"annotations": {"networking.gke.io/interfaces": "[]"}},
    "spec": {"nodeSelector": {_TYPE: "p4d.24xlarge"}},
}


def _on_nodes(limits: dict[str, int], *values: str) -> dict[str, Any]:
    """Two pods on nodes with one of several accelerators."""
    required = {"key": "cloud.google.com/gke-accelerator", "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [required]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    containers = [{"name": "train", "resources": {"limits": limits}}]
    return {"parallelism": 2, "template": {"spec": {"affinity": affinity, "containers": containers}}}


def _none(place: str, label: str = _TYPE) -> str:
    return (
        f"{place}: requests nvidia.com/gpu in several pods on nodes with a network between GPUs ({label}), but no"
        " device of it; request one, such as vpc.amazonaws.com/efa or rdma/ib, or attach its interfaces"
    )


CASES: Final = (
    Case(
        name="a device of the network",
        rule=fabric.gpu_fabric_requested,
        given={"job": JOB, "gang": GANG, "set": SET, "train": TRAIN, "claim": CLAIM},
        also=[
            ("job", manifest("{apiVersion: batch/v1, kind: Job, metadata: {name: nightly}, spec: {parallelism: 4}}")),
            ("job: spec.template.spec.containers.0.resources", {"requests": {"vpc.amazonaws.com/efa": 32}}),
            (f"job: spec.template.spec.nodeSelector.'{_TYPE}'", "g6.12xlarge"),
            ("job: metadata.namespace", "kube-system"),
        ],
        breaks=[
            Break("job: spec.template.spec.containers.0.resources", _GPUS, _none("Job ml-research/nightly")),
            Break(
                "gang: spec.tasks.0.template.spec.containers.0.resources", _GPUS, _none("Job ml-research/gang, worker")
            ),
            Break(
                "set: spec.replicatedJobs.0.template.spec.template.metadata",
                GONE,
                _none("JobSet ml-research/set, workers", "cloud.google.com/gke-accelerator"),
            ),
            Break("train: spec.trainer.resourcesPerNode", _GPUS, _none("TrainJob ml-research/finetune")),
            Break("claim: spec.template.spec.resourceClaims", GONE, _none("Job ml-research/claim")),
        ],
    ),
    Case(
        name="pods that need no device of the network",
        rule=fabric.gpu_fabric_requested,
        given={
            "alone": manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: alone, namespace: ml-research}
spec:
  template:
    spec:
      nodeSelector: {node.kubernetes.io/instance-type: p5.48xlarge}
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
""")
        },
        also=[
            ("alone: spec.template.spec.nodeSelector", {"nvidia.com/gpu.product": "NVIDIA-L4"}),
            ("alone: spec", _on_nodes({"nvidia.com/gpu": 8}, "nvidia-h200-141gb", "nvidia-l4")),
            ("alone: spec", _on_nodes({"nvidia.com/gpu": 8}, "p5.48xlarge")),
            ("alone: spec", _on_nodes({"cpu": 8}, "nvidia-b200")),
        ],
        breaks=[
            Break("alone: spec.parallelism", 2, _none("Job ml-research/alone")),
            Break(
                "alone: spec",
                _on_nodes({"nvidia.com/gpu": 8}, "nvidia-h200-141gb", "nvidia-b200"),
                _none("Job ml-research/alone", "cloud.google.com/gke-accelerator"),
            ),
        ],
        unknown={"alone: spec.parallelism": "Job ml-research/alone"},
    ),
    Case(
        name="nodes by GPU model, as in settings",
        rule=fabric.gpu_fabric_requested,
        given={"job": JOB, "train": TRAIN},
        settings={"nodes": ["nvidia.com/gpu.product=NVIDIA-H100*"], "devices": ["vpc.amazonaws.com/efa"]},
        also=[("job: spec.template.spec.containers.0.resources", _GPUS), (f"train: {_PATCHED}", _ATTACHED)],
        breaks=[
            Break(
                "job: spec.template.spec",
                {
                    "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
                    "containers": [{"name": "train", "resources": _GPUS}],
                },
                _none("Job ml-research/nightly", "nvidia.com/gpu.product"),
            )
        ],
    ),
)
