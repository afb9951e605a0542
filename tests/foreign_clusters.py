"""Clusters that this program did not create, as files of plain objects, and the findings of a survey."""

from copy import deepcopy
from typing import Any, Final

import yaml
from rendered_stacks import stack_of_repository
from repository import ROOT

from gpu_tenancy.embedded.nodes import node_shapes

FOREIGN: Final[dict[str, set[str]]] = {
    "kueue-single": {"promised-beyond-nodes", "gpu-nodes-without-taint", "gpus-beside-queue"},
    "kueue-cohort-v1beta1": {
        "queue-stopped", "queue-without-quota", "flavor-missing", "gpus-beside-queue",
    },
    "slack-queue": {"quota-below-queue", "guarantee-below-share"},
    "gke-blueprint": {"gpus-beside-queue"},
    "tutorial": {
        "quota-below-queue", "quota-counts-nothing", "flavor-without-nodes", "gpus-by-default", "gpus-beside-queue",
    },
    "gangs": {"gpus-without-queue"},
    "no-queues": {"gpus-without-queue"},
}  # fmt: skip


def objects(name: str = "consistent") -> list[Any]:
    """The objects of a cluster, in the order of its file."""
    file = ROOT / "tests" / "survey" / "clusters" / f"{name}.yaml"
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def cluster_of(name: str) -> list[Any]:
    """The objects of a stack of this repository without labels and annotations of this program, with its nodes."""
    made = stack_of_repository(name)
    objects: list[Any] = [deepcopy(dict(item.manifest)) for item in made.objects]
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    objects.append({"kind": "StorageClass", "metadata": {"name": "any", "annotations": default}})
    for shape in node_shapes(made.stack):
        node: Any = dict(shape.manifest)
        node["status"] = {"allocatable": dict(shape.capacity), "capacity": dict(shape.capacity)}
        objects.append(node)
    for each in objects:
        for marks in ("labels", "annotations"):
            kept = each["metadata"].get(marks, {})
            each["metadata"][marks] = {key: value for key, value in kept.items() if "gpu-tenancy" not in key + value}
    return objects
