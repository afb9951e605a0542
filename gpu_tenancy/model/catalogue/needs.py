"""What objects of a stack need besides the API server, and what provides it: the table `needs.yaml`."""

from collections.abc import Mapping
from functools import cache

from pydantic import Field

from gpu_tenancy.model.catalogue.rows import Fact, Row, read_rows


class Provider(Row):
    """A resource of this program.

    Attributes:
        by: its name, for people.
        type: of the Pulumi resource.
        inputs: texts that its inputs contain.
    """

    by: str
    type: str
    inputs: tuple[str, ...]


class Need(Fact):
    """Something that objects need to work.

    Attributes:
        kinds: rendered kinds that need it.
        of: who needs it, in the plural.
        without: what happens without a provider.
        means: what provides it in any cluster.
        made: by cloud, what provides it in a cluster that this program creates.
        cloud: by cloud, what provides it in every cluster of the cloud's Kubernetes service.
    """

    kinds: tuple[str, ...]
    of: str = Field(alias="for")
    without: str
    means: str
    made: Mapping[str, Provider] = {}
    cloud: Mapping[str, str] = {}


@cache
def needs() -> Mapping[str, Need]:
    """The needs by name; the names are the values of `cluster.provides`."""
    return read_rows("needs", dict[str, Need])
