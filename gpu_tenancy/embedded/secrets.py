"""Secrets that somebody creates by hand elsewhere: on the embedded platform, with placeholders."""

from typing import Final

from gpu_tenancy.kube.client import Cluster
from gpu_tenancy.model.spec import Stack

PLACEHOLDER: Final = "placeholder"
"""The value of each key; the key, where workloads name none."""


def bring_secrets(cluster: Cluster, stack: Stack) -> None:
    """Creates each Secret that a team declares as existing and that does not exist; the namespaces exist.

    It has the keys that variables of the team's workloads refer to.

    Raises:
        ApiError: the API server rejects a Secret.
    """
    for team, spec in stack.teams.items():
        workloads = (*spec.serving.values(), *spec.training.values())
        parts = (part for workload in workloads for part in workload.parts.values())
        variables = [variable for part in parts for variable in part.env.values()]
        for name in (name for name, secret in spec.secrets.items() if secret.existing):
            keys = {variable.key for variable in variables if variable.secret == name and variable.key}
            if not cluster.exists("v1", "Secret", name, team):
                cluster.apply(
                    {
                        "apiVersion": "v1",
                        "kind": "Secret",
                        "metadata": {"name": name, "namespace": team},
                        "stringData": dict.fromkeys(sorted(keys) or [PLACEHOLDER], PLACEHOLDER),
                    }
                )
