"""What the rest of the console uses of a rendered stack's Kubernetes objects."""

from console.offline.checks import problems
from console.offline.files import to_yaml, write
from console.offline.manifests import KubernetesObject, kubernetes_objects
from console.offline.ordering import DependencyCycleError, waves

__all__ = [
    "DependencyCycleError",
    "KubernetesObject",
    "kubernetes_objects",
    "problems",
    "to_yaml",
    "waves",
    "write",
]
