"""Routes of Gateway API from the hosts of Gateways to Services."""

from collections.abc import Mapping

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource

from gpu_tenancy.model.plan.servers import RoutePlan


def http_route(
    name: str, place: tuple[str, str], labels: Mapping[str, str], route: RoutePlan, opts: pulumi.ResourceOptions
) -> CustomResource:
    """An HTTPRoute, in which weights are set only if there are several Services.

    https://gateway-api.sigs.k8s.io/reference/api-types/httproute/

    Args:
        name: of the resource.
        place: namespace and name.
        labels: of the route.
        route: where it leads.
        opts: of the resource.
    """
    namespace, called = place
    of, gateway = route.gateway
    shares = {} if len(route.backends) == 1 else dict(route.backends)
    refs = [{"name": one, "port": 80, **({"weight": shares[one]} if shares else {})} for one, _ in route.backends]
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": path}} for path in route.paths],
        "timeouts": {"request": f"{route.timeout}s"},
        "backendRefs": refs,
    }
    return CustomResource(
        name,
        api_version="gateway.networking.k8s.io/v1",
        kind="HTTPRoute",
        metadata={"name": called, "namespace": namespace, "labels": dict(labels)},
        spec={
            "parentRefs": [{"namespace": of, "name": gateway, "sectionName": route.listener}],
            "hostnames": [route.host],
            "rules": [rule],
        },
        opts=opts,
    )
