"""Subjects of rules: node pools, node configurations and clusters of all clouds, and Karpenter objects."""

from collections.abc import Iterator
from typing import Final

from cloud_rules import aws, aws_nodes, azure, gcp, karpenter
from cloud_rules.pools import Cluster, MachineSource, NodePool, Nodes
from cloud_rules.tokens import (
    AKS_CLUSTER,
    AKS_POOL,
    ASG,
    ASGS,
    EKS_CLUSTER,
    EKS_POOL,
    GKE_CLUSTER,
    GKE_POOL,
    KARPENTER_CLASS,
    KARPENTER_POOL,
    LAUNCH_TEMPLATE,
    LAUNCH_TEMPLATES,
    NATIVE_ASG,
    NATIVE_EKS_CLUSTER,
    NATIVE_EKS_POOL,
    NATIVE_LAUNCH_TEMPLATE,
    token,
    tokens,
)
from rule_engine import Resource, Subject

_POOLS: Final = {
    EKS_POOL: aws.groups,
    ASG: aws.groups,
    NATIVE_EKS_POOL: aws.groups,
    NATIVE_ASG: aws.groups,
    KARPENTER_POOL: karpenter.pools,
    GKE_POOL: gcp.pools,
    GKE_CLUSTER: gcp.pools,
    AKS_POOL: azure.pools,
    AKS_CLUSTER: azure.pools,
}
_NODES: Final = {
    EKS_POOL: aws_nodes.nodes,
    LAUNCH_TEMPLATE: aws_nodes.nodes,
    NATIVE_EKS_POOL: aws_nodes.nodes,
    NATIVE_LAUNCH_TEMPLATE: aws_nodes.nodes,
    KARPENTER_CLASS: aws_nodes.nodes,
    GKE_POOL: gcp.nodes,
    GKE_CLUSTER: gcp.nodes,
    AKS_POOL: azure.pools,
    AKS_CLUSTER: azure.pools,
}
_CLUSTERS: Final = {
    EKS_CLUSTER: aws.EksCluster,
    NATIVE_EKS_CLUSTER: aws.NativeEksCluster,
    GKE_CLUSTER: gcp.GkeCluster,
    AKS_CLUSTER: azure.AksCluster,
}
_WHOLE: Final = (*_CLUSTERS, EKS_POOL, NATIVE_EKS_POOL, GKE_POOL, AKS_POOL)
EVALUATED: Final = frozenset({*_POOLS, *_NODES, *_CLUSTERS})
"""Types that rules evaluate."""
_PROTECTABLE: Final = (*_WHOLE, *ASGS)
_TAGGED: Final = (*_WHOLE, KARPENTER_CLASS)


def _pools(resource: Resource) -> Iterator[NodePool]:
    yield from _POOLS[token(resource.type)](resource)


def _machine_sources(resource: Resource) -> Iterator[MachineSource]:
    yield from aws_nodes.TEMPLATES.find(resource) if aws_nodes.TEMPLATES.selects(resource) else _pools(resource)


def _nodes(resource: Resource) -> Iterator[Nodes]:
    yield from _NODES[token(resource.type)](resource)


def _clusters(resource: Resource) -> Iterator[Cluster]:
    # A resource that a program only reads has no inputs to check.
    if resource.props.value:
        yield _CLUSTERS[token(resource.type)](resource, resource.props)


def _cluster_or_pool(resource: Resource) -> Iterator[Resource]:
    if resource.props.value and (token(resource.type) not in ASGS or any(_pools(resource))):
        yield resource


POOLS: Final = Subject("node pools", tokens(*_POOLS), _pools)
MACHINE_SOURCES: Final = Subject(
    "node pools and launch templates", tokens(*_POOLS, *LAUNCH_TEMPLATES), _machine_sources
)
NODES: Final = Subject("node configurations", tokens(*_NODES), _nodes)
CLUSTERS: Final = Subject("clusters", tokens(*_CLUSTERS), _clusters)
PROTECTABLE: Final = Subject("clusters and node pools", tokens(*_PROTECTABLE), _cluster_or_pool)
TAGGED: Final = Subject("clusters, node pools and node classes", tokens(*_TAGGED), _cluster_or_pool)
