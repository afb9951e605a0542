"""Cases for `workload_rules.devices`."""

from typing import Final

from policy_builders import GONE, Break, Case, manifest

from cases.case_gpus import JOB, TRAIN_JOB
from workload_rules import devices

_NIGHTLY: Final = "Job ml-research/nightly"
_TRAIN: Final = f"{_NIGHTLY}, container train"
_TRAINER: Final = "TrainJob ml-research/finetune, container trainer"
_CONTAINER: Final = "job: spec.template.spec.containers.0"
_MOUNTS: Final = f"{_CONTAINER}.volumeMounts.0"
_META: Final = "job: spec.template.metadata"
CONFIG: Final = manifest("""
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: ml-research}
data: {EPOCHS: "3"}
""")
SECRET: Final = manifest("""
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: ml-research}
data: {TOKEN: aHVudGVyMg==}
""")
_VARIABLE: Final = "NVIDIA_VISIBLE_DEVICES"


def _source(place: str) -> str:
    return f"{place}: has the key {_VARIABLE}, which bypasses GPU allocation in containers with envFrom; remove it"


def _annotated(key: str) -> Break:
    words = f"{_NIGHTLY}: has annotation {key}, which bypasses GPU allocation; remove it, and request GPUs under limits"
    return Break(_META, {"annotations": {key: "nvidia.com/gpu=all"}}, words)


def _mounted(path: str) -> Break:
    words = f"{_TRAIN}: mounts {path}, which bypasses GPU allocation; remove the mount"
    return Break(_MOUNTS, {"name": "shm", "mountPath": path}, words)


CASES: Final = (
    Case(
        name="variables that select GPUs",
        rule=devices.gpu_visible_devices,
        given={"job": JOB, "train": TRAIN_JOB},
        also=[
            (f"{_CONTAINER}.env.0", {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}),
            (f"{_CONTAINER}.env.0", {"name": "NVIDIA_VISIBLE_DEVICES"}),
            (f"{_CONTAINER}.env.0", {"name": "CUDA_VISIBLE_DEVICES", "value": "0"}),
        ],
        breaks=[
            Break(
                f"{_CONTAINER}.env.0",
                {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
                f"{_TRAIN}: sets NVIDIA_VISIBLE_DEVICES itself, which bypasses GPU allocation; remove it, or set it"
                " to none",
            ),
            Break(
                f"{_CONTAINER}.env.0",
                {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "gpus", "key": "all"}}},
                f"{_TRAIN}: sets NVIDIA_VISIBLE_DEVICES from a reference; remove it (the device plugin sets it)",
            ),
            Break(
                "train: spec.trainer.env.0",
                {"name": "NVIDIA_MIG_CONFIG_DEVICES", "value": "all"},
                f"{_TRAINER}: sets NVIDIA_MIG_CONFIG_DEVICES itself, which bypasses GPU allocation; remove it, or"
                " set it to none",
            ),
        ],
        unknown={f"{_CONTAINER}.env.0.name": _TRAIN},
    ),
    Case(
        name="variables of ConfigMaps and Secrets",
        rule=devices.gpu_visible_devices,
        given={"job": JOB, "config": CONFIG, "secret": SECRET},
        also=[
            ("config: data.NVIDIA_VISIBLE_DEVICES", "none"),
            ("config: data", GONE),
            ("config: metadata.namespace", "gpu-operator"),
            ("secret: data.NVIDIA_VISIBLE_DEVICES", "bm9uZQ=="),
            ("secret: stringData.NVIDIA_VISIBLE_DEVICES", "none"),
            (f"{_CONTAINER}.envFrom", [{"configMapRef": {"name": "settings"}}]),
            (f"{_CONTAINER}.envFrom", [{"prefix": "APP_", "configMapRef": {"name": "settings"}}]),
        ],
        breaks=[
            Break("config: data.NVIDIA_VISIBLE_DEVICES", "all", _source("ConfigMap ml-research/settings")),
            Break("secret: data.NVIDIA_VISIBLE_DEVICES", "YWxs", _source("Secret ml-research/keys")),
            Break("secret: data.NVIDIA_VISIBLE_DEVICES", "all", _source("Secret ml-research/keys")),
            Break("secret: stringData.NVIDIA_VISIBLE_DEVICES", "all", _source("Secret ml-research/keys")),
            Break(
                f"{_CONTAINER}.envFrom",
                [{"prefix": "NVIDIA_VISIBLE", "configMapRef": {"name": "settings"}}],
                f"{_TRAIN}: envFrom with prefix NVIDIA_VISIBLE can set NVIDIA_VISIBLE_DEVICES; use another prefix",
            ),
        ],
        unknown={"config: data.NVIDIA_VISIBLE_DEVICES": "ConfigMap ml-research/settings"},
    ),
    Case(
        name="variables in a system namespace",
        rule=devices.gpu_visible_devices,
        given={"job": JOB},
        also=[("job: metadata", {"name": "plugin", "namespace": "gpu-operator"})],
    ),
    Case(
        name="mounts and annotations that select GPUs, however they are written",
        rule=devices.gpu_visible_devices,
        given={"job": JOB, "train": TRAIN_JOB},
        also=[
            (_MOUNTS, {"name": "shm", "mountPath": "/var/run/nvidia"}),
            (_META, {"annotations": {"example.com/cdi.k8s.io": "x", "notcdi.k8s.io/x": "y"}}),
            ("job: metadata", {"name": "plugin", "namespace": "gpu-operator", "annotations": {"cdi.k8s.io/x": "y"}}),
        ],
        breaks=[
            _mounted("/var/run/nvidia-container-devices/all"),
            _mounted("/var/run/x/../nvidia-container-devices/all"),
            _mounted("var//run//nvidia-container-devices/0"),
            _annotated("cdi.k8s.io/gpu"),
            _annotated("nvidia.cdi.k8s.io/container.train"),
        ],
        unknown={_MOUNTS + ".mountPath": _TRAIN},
    ),
)
