"""Kubeconfigs of EKS clusters, without credentials."""

import json
from collections.abc import Sequence

from pulumi_aws.eks.outputs import ClusterCertificateAuthority

from gpu_tenancy.model.kubeconfig import Server, eks_helper, of_helper


def certificate(authority: ClusterCertificateAuthority) -> str:
    """The CA certificate of the API server, in base64."""
    return authority.data or ""


def kubeconfig(parts: Sequence[str]) -> str:
    """A kubeconfig without credentials: the AWS CLI creates a token for each use.

    Args:
        parts: URL of the API server, its CA certificate, name and region of the cluster.
    """
    endpoint, authority, name, region = parts
    return json.dumps(of_helper(Server(name, endpoint, authority), eks_helper(name, region)))
