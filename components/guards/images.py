"""CEL about the registries of images."""

from collections.abc import Iterable, Mapping
from typing import Final

from gpu_tenancy.model.plan.images import own_images, prefix_expression

from .expressions import CONTAINERS, first_of_each, literal

_NAMED: Final = (
    f"({CONTAINERS} + p.?ephemeralContainers.orValue([])).filter(c, c.?image.orValue('') != '').map(c, string(c.image))"
    " + p.?volumes.orValue([]).filter(v, v.?image.?reference.hasValue()).map(v, string(v.image.reference))"
)
"""Images of the pod `p`, as it names them; images of TrainJobs are evaluated in the JobSets that Trainer creates."""
_COMPLETED: Final = (
    # Without a digest; then with the registry, which a name has if its first part has a dot or a port.
    ".map(i, [i, i.split('@')[0].replace('index.docker.io/', 'docker.io/', 1)])"
    ".map(l, l[1].contains('/') && l[1].split('/')[0].matches('[.:]|^localhost$') ? l : [l[0], 'docker.io/' + l[1]])"
    ".map(l, l[1].matches('^docker[.]io/[^/]+$') ? [l[0], l[1].replace('docker.io/', 'docker.io/library/', 1)] : l)"
)
"""Pairs of an image, as it is named and as container runtimes complete it: `model.plan.images.full_path`."""


def image_variables(registries: Iterable[str]) -> Mapping[str, str]:
    """The variables of the rule about registries; `foreign` is the list of its messages."""
    prefixes = list(registries)
    expression = "|".join(prefix_expression(prefix) for prefix in (*prefixes, *own_images()))
    bad = f"!l[1].matches({literal(expression)})"
    found = first_of_each(f"variables.pods.map(p, ({_NAMED}){_COMPLETED}.filter(l, {bad}).map(l, l[0]))")
    fix = f"', whose registry is not allowed; use one of {', '.join(prefixes)}'"
    return {"foreign": f"{found}.map(i, 'uses image ' + i + {fix})"}
