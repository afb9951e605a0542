"""Cases for `workload_rules.gpus`."""

from typing import Final

from policy_builders import GONE, Break, Case, doubt, manifest

from workload_rules import gpus

JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  template:
    spec:
      tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]
      containers:
      - name: train
        image: registry.example.com/ml/train:3.0.1
        resources: {requests: {nvidia.com/gpu: 8}, limits: {nvidia.com/gpu: 8}}
""")
_TRAIN: Final = "Job ml-research/nightly, container train"
_RESOURCES: Final = "job: spec.template.spec.containers.0.resources"
_TOLERATIONS: Final = "job: spec.template.spec.tolerations"

CASES: Final = (
    Case(
        name="gpus of a container",
        rule=gpus.GPU_REQUEST,
        given={"job": JOB},
        also=[
            (f"{_RESOURCES}.requests", GONE),
            (f"{_RESOURCES}.limits.'nvidia.com/gpu'", "8"),
            (f"{_RESOURCES}.requests.cpu", "500m"),
        ],
        breaks=[
            Break(
                f"{_RESOURCES}.requests.'nvidia.com/gpu'",
                4,
                f"{_TRAIN}: requests 4 nvidia.com/gpu with a limit of 8; write the same number",
            ),
            Break(
                f"{_RESOURCES}.limits",
                GONE,
                f"{_TRAIN}: requests 8 nvidia.com/gpu without a limit; write limits.nvidia.com/gpu: 8 too",
            ),
            Break(
                _RESOURCES,
                {"limits": {"nvidia.com/gpu": "500m"}},
                f"{_TRAIN}: asks for 0.5 nvidia.com/gpu; a GPU is whole: write a whole number, or ask for a partition",
            ),
        ],
        unknown={
            f"{_RESOURCES}.limits.'nvidia.com/gpu'": doubt(
                _TRAIN, "spec.template.spec.containers.0.resources.limits.nvidia.com/gpu"
            ),
        },
    ),
    Case(
        name="the taint of GPU nodes",
        rule=gpus.GPU_TOLERATION,
        given={"job": JOB},
        also=[
            (f"{_TOLERATIONS}.0", {"operator": "Exists"}),
            ("job: metadata.namespace", "kube-system"),
        ],
        breaks=[
            Break(
                _TOLERATIONS,
                GONE,
                "Job ml-research/nightly: asks for GPUs and does not tolerate nvidia.com/gpu; add {key: nvidia.com/gpu,"
                " operator: Exists, effect: NoSchedule}",
            ),
            Break(
                f"{_TOLERATIONS}.0.effect",
                "NoExecute",
                "Job ml-research/nightly: asks for GPUs and does not tolerate nvidia.com/gpu; add {key: nvidia.com/gpu,"
                " operator: Exists, effect: NoSchedule}",
            ),
        ],
        unknown={
            _TOLERATIONS: doubt("Job ml-research/nightly", "spec.template.spec.tolerations"),
        },
    ),
)
