"""Kubeconfigs of AKS clusters, without credentials: kubelogin gets a token for each use."""

import base64
import json

import pulumi
import yaml
from pulumi_azure_native.containerservice import ListManagedClusterUserCredentialsResult
from pydantic import BaseModel, Field

from gpu_tenancy.model.kubeconfig import Server, aks_helper, of_helper


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
    server = Server(entry.name, entry.cluster.server, entry.cluster.authority)
    return json.dumps(of_helper(server, aks_helper(), "kubelogin"))
