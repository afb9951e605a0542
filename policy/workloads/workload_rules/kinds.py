"""Kinds that contain pods, from `kinds.yaml`, which `make facts` generates.

In a path, `*` is each item of a list, or each entry of a map.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

_ROWS: Final[Mapping[str, Mapping[str, Any]]] = yaml.safe_load(Path(__file__).with_name("kinds.yaml").read_bytes())


def _facts(name: str) -> Mapping[str, Any]:
    return {kind: row[name] for kind, row in _ROWS.items() if name in row}


PODS_IN: Final[Mapping[str, list[str]]] = _facts("pods")
"""Paths of pod templates, by API group and kind.

All other pods in objects of operators are found by their shape (`shapes`). A table is more exact where it exists: its
places are shorter, and `COUNTS` has the number of pods of each template.
"""
COUNTS: Final[Mapping[str, list[str]]] = _facts("counts")
"""Paths of the numbers whose product is the number of pods of a template; 1 if they are not set."""
COMMUNICATE: Final = frozenset(_facts("communicate"))
"""Kinds whose pods exchange data."""
COUNTED: Final = frozenset(_facts("counted"))
"""Kinds of which Kueue counts the pod template, before Kubernetes sets defaults of pods."""
DEADLINES: Final[Mapping[str, str]] = _facts("deadline")
"""Paths of the maximum run time in seconds. Volcano Jobs have one on pods only."""
GANGS: Final[Mapping[str, str]] = _facts("gang")
"""Paths of the specs that name a Volcano queue."""
RUNTIMES: Final = frozenset({"trainer.kubeflow.org:TrainingRuntime", "trainer.kubeflow.org:ClusterTrainingRuntime"})
"""Have the pods of TrainJobs, without their GPUs."""
TRAIN_JOB: Final = "trainer.kubeflow.org:TrainJob"
"""Has its own GPU request; its pods are in a runtime, usually of another stack."""
PATCHES: Final[list[str]] = _facts("patches")[TRAIN_JOB]
"""Paths of a TrainJob's pod specs, in the versions of its API."""
BATCH: Final = frozenset(kind for kind, work in _facts("work").items() if work == "batch")
"""Kinds of batch workloads."""
SERVING: Final = frozenset(kind for kind, work in _facts("work").items() if work == "serving") | {
    "serving.knative.dev:Configuration",
    "serving.kserve.io:InferenceService",
    "serving.kserve.io:LLMInferenceService",
    "serving.kserve.io:ServingRuntime",
    "serving.kserve.io:ClusterServingRuntime",
    "apps.kruise.io:CloneSet",
    "apps.kruise.io:StatefulSet",
    "apps.nvidia.com:NIMService",
}
"""Kinds of long-running serving workloads. The last ones, whose pods are found by shape, are from kserve/kserve,
openkruise/kruise and NVIDIA/k8s-nim-operator."""
