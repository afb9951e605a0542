"""A kubeconfig without any credential: who reaches the cluster says so to kubelogin, each time anew."""

import base64
import json
from typing import Final

import pulumi
import yaml
from pulumi_azure_native.containerservice import ListManagedClusterUserCredentialsResult
from pydantic import BaseModel, Field

SERVER_ID: Final = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""The Entra application that stands for every AKS cluster's API server:
https://azure.github.io/kubelogin/concepts/aks.html."""


class _Server(BaseModel):
    server: str
    authority: str = Field(alias="certificate-authority-data")


class _NamedCluster(BaseModel):
    name: str
    cluster: _Server


class _Kubeconfig(BaseModel):
    """What is read of a kubeconfig; its users are not."""

    clusters: list[_NamedCluster]


def own_kubeconfig(credentials: ListManagedClusterUserCredentialsResult) -> str:
    """The kubeconfig for a cluster, of what AKS answers when asked for a user's.

    AKS tells the API server's address and its CA nowhere else. Whatever else it answers, client certificates and tokens
    of clusters with local accounts among it, is left behind here.

    Raises:
        pulumi.RunError: AKS answered without a kubeconfig.
    """
    if not credentials.kubeconfigs:
        message = "AKS gave no kubeconfig; whoever deploys needs the role Azure Kubernetes Service Cluster User"
        raise pulumi.RunError(message)
    text = base64.b64decode(credentials.kubeconfigs[0].value).decode()
    found = _Kubeconfig.model_validate(yaml.safe_load(text)).clusters[0]
    return kubeconfig(found.name, found.cluster.server, found.cluster.authority)


def kubeconfig(name: str, server: str, authority: str) -> str:
    """A kubeconfig as JSON text, with kubelogin as the one who logs in.

    It logs in as the Azure CLI is logged in; `AAD_LOGIN_METHOD` in the environment says otherwise, such as
    `workloadidentity` in a pipeline: https://azure.github.io/kubelogin/cli/get-token.html.

    Args:
        name: of the cluster.
        server: address of its API server.
        authority: its CA's certificate, PEM in base64.
    """
    login = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "kubelogin",
        "args": ["get-token", "--login", "azurecli", "--server-id", SERVER_ID],
        "installHint": "kubelogin is not installed; see https://azure.github.io/kubelogin/install.html",
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": False,
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "kubelogin", "user": {"exec": login}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": "kubelogin"}}],
            "current-context": name,
        }
    )
