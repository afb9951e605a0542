"""Clusters that this program did not create, as files of plain objects, and the findings of a survey."""

from typing import Any, Final

import yaml
from repository import ROOT

FOREIGN: Final[dict[str, set[str]]] = {
    "kueue-single": {"promised-beyond-nodes", "gpu-nodes-without-taint", "gpus-beside-queue"},
    "kueue-cohort-v1beta1": {
        "queue-stopped", "queue-without-quota", "flavor-missing", "gpus-beside-queue",
    },
    "slack-queue": {"quota-below-queue", "guarantee-below-share"},
    "gke-blueprint": {"gpus-beside-queue"},
    "gangs": {"gpus-without-queue"},
    "no-queues": {"gpus-without-queue"},
}  # fmt: skip


def objects(name: str = "consistent") -> list[Any]:
    """The objects of a cluster, in the order of its file."""
    file = ROOT / "tests" / "survey" / "clusters" / f"{name}.yaml"
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
