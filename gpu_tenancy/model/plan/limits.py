"""What a container may have, and gets where it says nothing."""

from dataclasses import dataclass
from fractions import Fraction

from gpu_tenancy.model.quantity import CPU, MEMORY, Amounts
from gpu_tenancy.model.spec.teams import Team


@dataclass(frozen=True, slots=True)
class Defaults:
    """Requests and limits of a container that names none."""

    requests: Amounts
    limits: Amounts


def ratios(team: Team) -> dict[str, Fraction]:
    """How many times its request a container's limit may be, where the budget bounds both.

    The queue admits by requests alone. Bounding the ratio is what keeps all limits within the budget's, whatever
    the queue admitted.
    """
    found: dict[str, Fraction] = {}
    for resource in (CPU, MEMORY):
        requests, limits = getattr(team.compute.requests, resource), getattr(team.compute.limits, resource)
        if requests and limits and limits >= requests:
            # A millesimal is the finest that a quantity states; rounding down stays on the safe side.
            found[resource] = Fraction(limits * 1000 // requests, 1000)
            least, most = getattr(team.containers.min, resource), getattr(team.containers.max, resource)
            if least and most and found[resource] >= Fraction(most, least):
                del found[resource]  # min and max bound it already, and the API server refuses a looser ratio.
    return found


def container_defaults(team: Team) -> Defaults:
    """The stack's own defaults; limits left out stay within the budget's ratio."""
    containers, most = team.containers, ratios(team)
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    for resource in (CPU, MEMORY):
        default: int | None = getattr(containers.default, resource)
        said: int | None = getattr(containers.default_request, resource)
        at_least, at_most = getattr(containers.min, resource) or 0, getattr(containers.max, resource)
        unsaid = min([_DEFAULT_REQUEST[resource], *(bound for bound in (default, at_most) if bound)])
        request = said or max(at_least, unsaid)
        ceilings = [int(request * most[resource])] if resource in most else []
        stated = "default" in containers.model_fields_set and default is not None
        ceilings += [at_most] if at_most else []
        limits[resource] = default if stated and default else max(request, min([default or 2 * request, *ceilings]))
        requests[resource] = request
    return Defaults(requests, limits)


_DEFAULT_REQUEST = {CPU: 1000, MEMORY: 4 * 2**30}
