"""Defaults of containers, and the ratio of limits to requests."""

from dataclasses import dataclass
from fractions import Fraction

from gpu_tenancy.base.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.spec.teams import Team


@dataclass(frozen=True, slots=True)
class Defaults:
    """Requests and limits of a container without them."""

    requests: Amounts
    limits: Amounts


def ratios(team: Team) -> dict[str, Fraction]:
    """The maximum ratio of a container's limit to its request, by resource, where the budget sets both.

    The queue admits by requests only. The maximum ratio keeps the sum of all limits within the budget, whatever the
    queue admits.
    """
    maximum: dict[str, Fraction] = {}
    for resource in (CPU, MEMORY):
        requests, limits = getattr(team.compute.requests, resource), getattr(team.compute.limits, resource)
        if requests and limits and limits >= requests:
            # Quantities have at most three decimals here; rounding down is safe.
            maximum[resource] = Fraction(limits * 1000 // requests, 1000)
            lowest, highest = getattr(team.containers.min, resource), getattr(team.containers.max, resource)
            if lowest and highest and maximum[resource] >= Fraction(highest, lowest):
                del maximum[resource]  # min and max imply it already, and the API server rejects a larger ratio.
    return maximum


def container_defaults(team: Team) -> Defaults:
    """The stack's defaults; limits that are not set are within the budget's ratio."""
    containers, ratio_of = team.containers, ratios(team)
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for resource in (CPU, MEMORY):
        default: int | None = getattr(containers.default, resource)
        default_request: int | None = getattr(containers.default_request, resource)
        at_least, at_most = getattr(containers.min, resource) or 0, getattr(containers.max, resource)
        fallback = min([_DEFAULT_REQUEST[resource], *(bound for bound in (default, at_most) if bound)])
        request = default_request or max(at_least, fallback)
        ceilings = [int(request * ratio_of[resource])] if resource in ratio_of else []
        stated = "default" in containers.model_fields_set and default is not None
        ceilings += [at_most] if at_most else []
        limits[resource] = default if stated and default else max(request, min([default or 2 * request, *ceilings]))
        requests[resource] = request
    return Defaults(requests, limits)


_DEFAULT_REQUEST = {CPU: 1000, MEMORY: 4 * 2**30}
