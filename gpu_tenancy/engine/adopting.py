"""Objects that a stack adopts, compared with the objects that it has."""

from collections.abc import Iterator
from typing import Final

from gpu_tenancy.base.problems import Problem, nearest
from gpu_tenancy.engine.manifests import kubernetes_objects
from gpu_tenancy.engine.render import Rendered
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.model.source import Source
from gpu_tenancy.model.spec import Stack

_OF_CLUSTER: Final = "gpu-tenancy:clouds:"
"""In the URN of each resource below a cluster of `components/clouds`."""


def adoption_problems(source: Source, stack: Stack, rendered: Rendered) -> Iterator[Problem]:
    """Names in `cluster.adopt` that no object of the stack has.

    What a created cluster has beside the tenancy and its operators, such as its StorageClass, is not adopted.
    """
    if not stack.cluster.adopt:
        return
    known = {
        Reference.of(item.manifest).adoptable for item in kubernetes_objects(rendered) if _OF_CLUSTER not in item.urn
    }
    for place, name in enumerate(stack.cluster.adopt):
        if name not in known:
            path = ("cluster", "adopt", place)
            yield Problem(
                path,
                "is no object that this stack can adopt",
                f"remove it, or correct it: {nearest(name, known)}",
                value=name,
                file=source.file,
                line=source.line(path),
            )
