"""Kubernetes objects of a rendered stack: the functions that other packages use."""

from gpu_tenancy.engine.checks import problems
from gpu_tenancy.engine.files import to_yaml, write
from gpu_tenancy.engine.manifests import KubernetesObject, kubernetes_objects
from gpu_tenancy.engine.ordering import DependencyCycleError, waves

__all__ = [
    "DependencyCycleError",
    "KubernetesObject",
    "kubernetes_objects",
    "problems",
    "to_yaml",
    "waves",
    "write",
]
