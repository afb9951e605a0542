"""Kubeconfigs of AKS clusters, without credentials: kubelogin gets a token for each use."""

import base64
import json
from typing import Final

import pulumi
import yaml
from pulumi_azure_native.containerservice import ListManagedClusterUserCredentialsResult
from pydantic import BaseModel, Field

SERVER_ID: Final = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""The Entra application of all AKS API servers:
https://azure.github.io/kubelogin/concepts/aks.html."""


class _Server(BaseModel):
    server: str
    authority: str = Field(alias="certificate-authority-data")


class _NamedCluster(BaseModel):
    name: str
    cluster: _Server


class _Kubeconfig(BaseModel):
    """The clusters of a kubeconfig; its users are not read."""

    clusters: list[_NamedCluster]


def own_kubeconfig(credentials: ListManagedClusterUserCredentialsResult) -> str:
    """A kubeconfig for a cluster, from the user credentials that AKS returns.

    Only these contain the API server's address and CA. Client certificates and tokens in them, which clusters with
    local accounts have, are dropped.

    Raises:
        pulumi.RunError: AKS returned no kubeconfig.
    """
    if not credentials.kubeconfigs:
        message = "AKS gave no kubeconfig; whoever deploys needs the role Azure Kubernetes Service Cluster User"
        raise pulumi.RunError(message)
    text = base64.b64decode(credentials.kubeconfigs[0].value).decode()
    entry = _Kubeconfig.model_validate(yaml.safe_load(text)).clusters[0]
    return kubeconfig(entry.name, entry.cluster.server, entry.cluster.authority)


def kubeconfig(name: str, server: str, authority: str) -> str:
    """A kubeconfig as JSON, with kubelogin as credential plugin.

    kubelogin uses the login of the Azure CLI. Set `AAD_LOGIN_METHOD` in the environment for another method, such as
    `workloadidentity` in a pipeline: https://azure.github.io/kubelogin/cli/get-token.html.

    Args:
        name: name of the cluster.
        server: address of its API server.
        authority: its CA certificate, PEM in base64.
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
