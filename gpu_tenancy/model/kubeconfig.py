"""Kubeconfigs without credentials: the cloud's own helper gets a token at each use."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

AKS_SERVER_ID: Final = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""Entra application of all AKS API servers: https://azure.github.io/kubelogin/concepts/aks.html."""
_EXEC: Final = "client.authentication.k8s.io/v1beta1"


@dataclass(frozen=True, slots=True)
class Server:
    """The API server of a cluster; `authority` is its CA, PEM in base64, None for a public one."""

    name: str
    url: str
    authority: str | None


def eks_helper(name: str, region: str, role: str | None = None) -> dict[str, Any]:
    """The AWS CLI creates the token, as in `aws eks update-kubeconfig`.

    `role` is the ARN of the IAM role to assume; None for the caller's own login.
    https://docs.aws.amazon.com/eks/latest/userguide/create-kubeconfig.html
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
    """A kubeconfig for a cluster and the helper (`exec`) that gets tokens; default user: the cluster's name."""
    authority = {} if server.authority is None else {"certificate-authority-data": server.authority}
    return kubeconfig(server.name, {"server": server.url, **authority}, user or server.name, {"exec": dict(helper)})


def kubeconfig(
    name: str, cluster: Mapping[str, Any], user: str, credentials: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A kubeconfig with one context, of the cluster's name; no credentials if another file has the user entry."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": user, "user": dict(credentials)}] if credentials is not None else [],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
