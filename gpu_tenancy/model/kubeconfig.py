"""Kubeconfigs without credentials: the cloud's own helper gets a token at each use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

AKS_SERVER_ID: Final = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""The Entra application of all AKS API servers: https://azure.github.io/kubelogin/concepts/aks.html."""
_EXEC: Final = "client.authentication.k8s.io/v1beta1"


@dataclass(frozen=True, slots=True)
class Server:
    """An API server.

    Attributes:
        name: of the cluster.
        url: of the API server.
        authority: its CA certificate, PEM in base64; None if it has one of a public CA.
    """

    name: str
    url: str
    authority: str | None


def eks_helper(name: str, region: str, role: str | None = None) -> dict[str, Any]:
    """The AWS CLI creates the token, as in `aws eks update-kubeconfig`.

    https://docs.aws.amazon.com/eks/latest/userguide/create-kubeconfig.html

    Args:
        name: of the cluster.
        region: of the cluster.
        role: ARN of the IAM role to assume; None for the caller's own login.
    """
    token = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
    return {"apiVersion": _EXEC, "command": "aws", "args": [*token, *(["--role-arn", role] if role else [])]}


def gke_helper() -> dict[str, Any]:
    """`gke-gcloud-auth-plugin` creates the token from the credentials of gcloud or of the environment.

    https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl
    """
    return {
        "apiVersion": _EXEC,
        "command": "gke-gcloud-auth-plugin",
        "installHint": "gcloud components install gke-gcloud-auth-plugin",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": True,
    }


def aks_helper() -> dict[str, Any]:
    """Kubelogin creates the token from the login of the Azure CLI.

    Set `AAD_LOGIN_METHOD` in the environment for another method, such as `workloadidentity` in a pipeline:
    https://azure.github.io/kubelogin/cli/get-token.html.
    """
    return {
        "apiVersion": _EXEC,
        "command": "kubelogin",
        "args": ["get-token", "--login", "azurecli", "--server-id", AKS_SERVER_ID],
        "installHint": "kubelogin is not installed; see https://azure.github.io/kubelogin/install.html",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": False,
    }


def of_helper(server: Server, helper: Mapping[str, Any], user: str | None = None) -> dict[str, Any]:
    """A kubeconfig for a cluster and the helper that gets tokens.

    Args:
        server: the API server.
        helper: the `exec` section.
        user: name of the user entry; None for the cluster's name.
    """
    authority = {} if server.authority is None else {"certificate-authority-data": server.authority}
    cluster = {"server": server.url, **authority}
    return kubeconfig(server.name, cluster, user or server.name, {"exec": dict(helper)})


def kubeconfig(
    name: str, cluster: Mapping[str, Any], user: str, credentials: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A kubeconfig with one context.

    Args:
        name: of the cluster and the context.
        cluster: its entry.
        user: name of the user entry.
        credentials: the user entry; None if another file has it.
    """
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": user, "user": dict(credentials)}] if credentials is not None else [],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
