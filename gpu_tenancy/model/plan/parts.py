"""The Pulumi stacks into which an environment is divided."""

from typing import Final

from gpu_tenancy.model.spec import NAMESPACE, Stack
from gpu_tenancy.model.spec.clouds.existing import ExistingCluster

KEY: Final = f"{NAMESPACE}:part"
"""Config key of the Pulumi stacks into which an environment is divided; its value is the name of the part."""
CLUSTER: Final = "cluster"
OPERATORS: Final = "operators"
TENANCY: Final = "tenancy"


def is_part(name: str) -> bool:
    """Whether a part of any environment can have this name, now or in an earlier version."""
    return name in {CLUSTER, OPERATORS, TENANCY} or name.startswith("cohort.")


def parts(stack: Stack, *, operators: bool) -> tuple[str, ...]:
    """The names of a stack's parts, in the order of their deployment; empty if it is not divided.

    The name of a part's Pulumi stack is the environment's, a dot and that of the part.

    Args:
        stack: the environment.
        operators: whether it installs operators or dashboards.
    """
    if stack.split is None:
        return ()
    on_cloud = not isinstance(stack.cluster, ExistingCluster)
    return (*([CLUSTER] if on_cloud else ()), *([OPERATORS] if operators else ()), TENANCY)
