"""Cases for `workload_rules.gpus`."""

from typing import Any, Final

from policy_builders import GONE, Break, Case, changed, manifest

from workload_rules import gpus

JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  completionMode: Indexed
  parallelism: 4
  template:
    spec:
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      containers:
      - name: train
        image: registry.example.com/ml/train:3.0.1
        env: [{name: EPOCHS, value: "3"}]
        resources: {requests: {nvidia.com/gpu: 8}, limits: {nvidia.com/gpu: 8}}
        volumeMounts: [{name: shm, mountPath: /dev/shm}]
      volumes:
      - name: shm
        emptyDir: {medium: Memory, sizeLimit: 8Gi}
""")
TRAIN_JOB: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: finetune, namespace: ml-research}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: registry.example.com/ml/train:3.0.1
    numNodes: 2
    env: [{name: EPOCHS, value: "3"}]
    resourcesPerNode: {requests: {nvidia.com/gpu: 8}, limits: {nvidia.com/gpu: 8}}
""")
ONE: Final = manifest("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: one, namespace: ml-one}
spec:
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4-SHARED}
      containers: [{name: server, image: one:1, resources: {limits: {nvidia.com/gpu: 1}}}]
""")
OTHER: Final = manifest("""
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: ml-other}
spec:
  template:
    spec:
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L4]}]
      containers: [{name: server, image: other:1, resources: {limits: {nvidia.com/gpu: 1}}}]
""")
SHARED: Final = changed(
    {"one": ONE},
    "one: spec.template.spec",
    {"containers": [{"name": "server", "resources": {"limits": {"nvidia.com/gpu.shared": 1}}}]},
)["one"]
_NIGHTLY: Final = "Job ml-research/nightly"
_TRAIN: Final = f"{_NIGHTLY}, container train"
_TRAINER: Final = "TrainJob ml-research/finetune, container trainer"
_SPEC: Final = "job: spec.template.spec"
_CONTAINER: Final = f"{_SPEC}.containers.0"
_RESOURCES: Final = f"{_CONTAINER}.resources"
_GPUS: Final = "spec.template.spec.containers.0.resources.limits.nvidia.com/gpu"
_VALUES: Final = (
    "other: spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    ".nodeSelectorTerms.0.matchExpressions.0.values"
)


def _gpus(count: object, name: str = "nvidia.com/gpu") -> dict[str, Any]:
    return {"limits": {name: count}}


def _turns(one: str, other: str, name: str = "nvidia.com/gpu") -> str:
    return (
        f"{one}: shares time-sliced {name} with {other} without memory isolation; partition the GPUs with MIG,"
        " select other nodes, or list both namespaces under `trusting`"
    )


_GRACE: Final = f"{_SPEC}.terminationGracePeriodSeconds"


def _grace(place: str, seconds: str, maximum: int = 600) -> str:
    return (
        f"{place}: has a termination grace period of {seconds} s, in which it keeps its GPUs; set"
        f" terminationGracePeriodSeconds: {maximum} or less"
    )


CASES: Final = (
    Case(
        name="gpus of a container",
        rule=gpus.gpu_request_equals_limit,
        given={"job": JOB, "train": TRAIN_JOB},
        also=[
            (f"{_RESOURCES}.requests", GONE),
            (f"{_RESOURCES}.limits.'nvidia.com/gpu'", "8"),
            (f"{_RESOURCES}.requests.cpu", "500m"),
        ],
        breaks=[
            Break(
                f"{_RESOURCES}.requests.'nvidia.com/gpu'",
                4,
                f"{_TRAIN}: requests 4 nvidia.com/gpu, but the limit is 8; set both to the same number",
            ),
            Break(
                f"{_RESOURCES}.requests.'nvidia.com/gpu'",
                0,
                f"{_TRAIN}: requests 0 nvidia.com/gpu, but the limit is 8; set both to the same number",
            ),
            Break(
                f"{_RESOURCES}.limits",
                GONE,
                f"{_TRAIN}: requests 8 nvidia.com/gpu without a limit; set limits.nvidia.com/gpu: 8",
            ),
            Break(
                _RESOURCES,
                _gpus("500m"),
                f"{_TRAIN}: requests 0.5 nvidia.com/gpu, which is not a whole number; set a whole number, or"
                " request a partition",
            ),
            Break(
                "train: spec.trainer.resourcesPerNode.limits",
                GONE,
                f"{_TRAINER}: requests 8 nvidia.com/gpu without a limit; set limits.nvidia.com/gpu: 8",
            ),
        ],
        unknown={f"{_RESOURCES}.limits.'nvidia.com/gpu'": _TRAIN},
    ),
    Case(
        name="gpus of a node",
        rule=gpus.gpu_per_node,
        given={"job": JOB, "train": TRAIN_JOB},
        also=[
            (_RESOURCES, _gpus(56, "nvidia.com/mig-1g.10gb")),
            (f"{_SPEC}.initContainers", [{"name": "first", "resources": _gpus(8)}]),
        ],
        breaks=[
            Break(
                f"{_SPEC}.initContainers",
                [{"name": "first", "resources": _gpus(16)}, {"name": "second", "resources": _gpus(8)}],
                f"{_NIGHTLY}: requests 16 nvidia.com/gpu, but the largest node has 8; split the work into pods of at"
                " most 8",
            ),
            Break(
                f"{_SPEC}.initContainers",
                [{"name": "sidecar", "restartPolicy": "Always", "resources": _gpus(1)}],
                f"{_NIGHTLY}: requests 9 nvidia.com/gpu, but the largest node has 8; split the work into pods of at"
                " most 8",
            ),
            Break(
                _RESOURCES,
                _gpus(16),
                f"{_NIGHTLY}: requests 16 nvidia.com/gpu, but the largest node has 8; split the work into pods of"
                " at most 8",
            ),
            Break(
                f"{_SPEC}.containers.1",
                {"name": "more", "resources": _gpus(1)},
                f"{_NIGHTLY}: requests 9 nvidia.com/gpu, but the largest node has 8; split the work into pods of at"
                " most 8",
            ),
            Break(
                "train: spec.trainer.resourcesPerNode",
                _gpus(9),
                "TrainJob ml-research/finetune: requests 9 nvidia.com/gpu, but the largest node has 8; split the"
                " work into pods of at most 8",
            ),
        ],
        unknown={f"{_RESOURCES}.limits.'nvidia.com/gpu'": _NIGHTLY},
    ),
    Case(
        name="partitions in settings: the exact name applies, else the longest pattern",
        rule=gpus.gpu_per_node,
        given={"job": JOB},
        settings={
            "largest": {
                "nvidia.com/*": 8.0,
                "nvidia.com/mig-1*": 7.0,
                "nvidia.com/mig-2g.20gb": 3.0,
                "nvidia.com/mig-2g.20gb*": 1.0,
                "nvidia.com/mig?*": 1.0,
            }
        },
        also=[(_RESOURCES, _gpus(3, "nvidia.com/mig-2g.20gb"))],
        breaks=[
            Break(
                _RESOURCES,
                _gpus(8, "nvidia.com/mig-1g.10gb"),
                f"{_NIGHTLY}: requests 8 nvidia.com/mig-1g.10gb, but the largest node has 7; split the work into"
                " pods of at most 7",
            )
        ],
    ),
    Case(
        name="the grace period of pods with GPUs",
        rule=gpus.gpu_grace_bounded,
        given={"job": JOB, "train": TRAIN_JOB, "one": ONE},
        also=[
            (_GRACE, 600),
            ("one: spec.template.spec.terminationGracePeriodSeconds", 3600),
            (_SPEC, {"terminationGracePeriodSeconds": 86400, "containers": [{"name": "cpu"}]}),
            (_SPEC, {"terminationGracePeriodSeconds": 86400, "containers": [{"resources": _gpus(0)}]}),
            (_SPEC, {"terminationGracePeriodSeconds": 86400, "containers": [{"resources": _gpus(None)}]}),
            (_SPEC, {"terminationGracePeriodSeconds": 86400, "initContainers": [{"resources": _gpus(0)}]}),
            ("job: metadata.namespace", "kube-system"),
        ],
        breaks=[
            Break(_GRACE, 31536000, _grace(_NIGHTLY, "31536000")),
            Break(_GRACE, "601", _grace(_NIGHTLY, "601")),
            Break(
                "one: spec.template.spec.terminationGracePeriodSeconds",
                3601,
                _grace("Deployment ml-one/one", "3601", 3600),
            ),
            Break(
                "train: spec.podTemplateOverrides",
                [{"spec": {"terminationGracePeriodSeconds": 86400}}],
                _grace("TrainJob ml-research/finetune, spec.podTemplateOverrides.0", "86400"),
            ),
            Break(
                _SPEC,
                {
                    "terminationGracePeriodSeconds": 86400,
                    "containers": [{"name": "train"}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
                },
                _grace(_NIGHTLY, "86400"),
            ),
        ],
        unknown={_GRACE: _NIGHTLY},
    ),
    Case(
        name="time-sliced GPUs",
        rule=gpus.time_slicing_trust,
        given={"one": ONE, "other": OTHER},
        also=[
            (_VALUES, ["NVIDIA-A10G-SHARED"]),
            ("other: spec.template.spec.containers.0.resources", _gpus(1, "nvidia.com/mig-1g.5gb")),
            ("one: spec.template.spec.nodeSelector", {"cloud.google.com/gke-gpu-sharing-strategy": "mps"}),
        ],
        breaks=[
            Break(
                _VALUES,
                ["NVIDIA-L4-SHARED"],
                (
                    _turns("Deployment ml-one/one", "Deployment ml-other/other"),
                    _turns("Deployment ml-other/other", "Deployment ml-one/one"),
                ),
            )
        ],
        unknown={f"{_VALUES}.0": ("Deployment ml-one/one", "Deployment ml-other/other")},
    ),
    Case(
        name="shared GPUs by resource name",
        rule=gpus.time_slicing_trust,
        given={"one": SHARED, "train": TRAIN_JOB},
        settings={"resources": ["*.shared", "*.sliced"]},
        breaks=[
            Break(
                "train: spec.trainer.resourcesPerNode",
                _gpus(1, "nvidia.com/gpu.shared"),
                (
                    _turns("Deployment ml-one/one", "TrainJob ml-research/finetune", "nvidia.com/gpu.shared"),
                    _turns("TrainJob ml-research/finetune", "Deployment ml-one/one", "nvidia.com/gpu.shared"),
                ),
            )
        ],
    ),
    Case(
        name="namespaces that trust one another",
        rule=gpus.time_slicing_trust,
        given={"one": ONE, "other": changed({"other": OTHER}, _VALUES, ["NVIDIA-L4-SHARED"])["other"]},
        settings={"trusting": {"research": ["ml-one", "ml-o*"], "others": ["ml-one", "stranger"]}},
        also=[("other: metadata.namespace", "stranger"), ("one: metadata.namespace", "gpu-operator")],
        breaks=[
            Break(
                "one: metadata.namespace",
                "stranger",
                (
                    _turns("Deployment stranger/one", "Deployment ml-other/other"),
                    _turns("Deployment ml-other/other", "Deployment stranger/one"),
                ),
            )
        ],
    ),
)
