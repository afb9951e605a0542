"""Images of containers: the registries that teams may use, and those that nodes may read."""

import re
from typing import Annotated, Final, TypeAlias

from gpu_tenancy.model.fields import Matching, Section

_HOST: Final = r"(?=[^/]*[.*]|localhost)[A-Za-z0-9*][A-Za-z0-9.*-]*(:\d+)?"

Prefix: TypeAlias = Annotated[
    str,
    Matching(
        re.compile(rf"{_HOST}(/[a-z0-9*._-]+)*"),
        "is not a registry or the start of a path in one",
        "write the host first, such as registry.example.com/ml, *.pkg.dev/ml-prod or docker.io/library",
        schema=r"^[A-Za-z0-9*][^/]*(/[a-z0-9*._-]+)*$",
    ),
]
"""A registry with the start of a path; `*` stands for any characters of one segment."""

ARTIFACTS: Final = re.compile(
    r"projects/(?P<project>[a-z][-a-z0-9]{4,28}[a-z0-9])/locations/(?P<location>[a-z0-9-]+)/repositories/(?P<name>[a-z][-a-z0-9]{0,61}[a-z0-9])"
)
"""A repository of Artifact Registry."""
ACR: Final = re.compile(
    r"/subscriptions/[0-9a-f-]{36}/resourceGroups/[-\w.()]+/providers/Microsoft\.ContainerRegistry/registries/(?P<name>[A-Za-z0-9]{5,50})"
)
"""Resource ID of an Azure container registry."""

Readable: TypeAlias = Annotated[
    str,
    Matching(
        re.compile("|".join(pattern.pattern.replace("?P<name>", "") for pattern in (ARTIFACTS, ACR))),
        "is not a registry whose readers are set one by one",
        "write projects/PROJECT/locations/LOCATION/repositories/NAME of Artifact Registry, or the resource ID of an"
        " Azure container registry",
        schema="^(projects|/subscriptions)/.+$",
    ),
]


class Images(Section):
    """Images of teams' containers, and what the nodes may pull."""

    allowed: list[Prefix] = []
    """Registries of the teams' images, each with the start of a path if only a part of it is allowed:
    `[registry.example.com/ml, "*.pkg.dev/ml-prod"]`. Images of the stack are checked, and a guard evaluates those of
    tenants; default: any."""
    registries: list[Readable] = []
    """Registries that the nodes get the right to read, also as pull-through caches: repositories of Artifact Registry
    in other projects (`projects/PROJECT/locations/LOCATION/repositories/NAME`), or Azure container registries (by
    resource ID). On EKS, nodes can read ECR of their account without it; on GKE, Artifact Registry of their project."""
