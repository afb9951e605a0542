"""Rules for GPU workloads on Kubernetes, for any Pulumi program in any language."""

from typing import Final

from rule_engine import Pack, Resource
from workload_rules import (
    access,
    borrowing,
    budgets,
    credentials,
    fabric,
    gpus,
    images,
    jobs,
    operators,
    placement,
    priorities,
    queues,
    quotas,
    roles,
    security,
    serving,
    tenancy,
)

ANNOTATION: Final = "exempt.gpu-rules/"
"""An annotation of this prefix and a rule's name exempts an object: `exempt.gpu-rules/image-pinned: 2027-01-31 why`."""


def exemptions(resource: Resource) -> dict[str, str]:
    """The exemptions in an object's annotations, keyed by rule name."""
    annotations = resource.props.entries("metadata", "annotations")
    return {
        key.removeprefix(ANNOTATION): annotation.text()
        for key, annotation in annotations.items()
        if key.startswith(ANNOTATION)
    }


PACK: Final = Pack(
    name="gpu-workloads",
    version="0.1.0",
    description="Rules for GPU workloads on Kubernetes.",
    rules=(
        *gpus.RULES,
        *placement.RULES,
        *fabric.RULES,
        *jobs.RULES,
        *security.RULES,
        *images.RULES,
        *credentials.RULES,
        *tenancy.RULES,
        *roles.RULES,
        *access.RULES,
        *quotas.RULES,
        *queues.RULES,
        *borrowing.RULES,
        *priorities.RULES,
        *serving.RULES,
        *budgets.RULES,
        *operators.RULES,
    ),
    exemptions=exemptions,
)
