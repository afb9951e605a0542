"""Samples in Prometheus' exposition format: https://prometheus.io/docs/instrumenting/exposition_formats/."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from gpu_tenancy.base.json import Json

Manifest: TypeAlias = Mapping[str, Json]
Sample: TypeAlias = tuple[str, Mapping[str, str], float]
"""A metric, its labels and its value. All are gauges; an empty label is as none."""


def exposition(samples: Iterable[Sample], help_text: str) -> str:
    """The text of samples, with the same help for each metric."""
    by_metric: dict[str, list[str]] = {}
    for metric, labels, value in samples:
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items() if text)
        by_metric.setdefault(metric, []).append(f"{metric}{{{pairs}}} {value:.15g}")
    lines: list[str] = []
    for metric, found in by_metric.items():
        lines += [f"# HELP {metric} {help_text}", f"# TYPE {metric} gauge", *found]
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
