"""Cases for `workload_rules.exposure`."""

from typing import Final

from policy_builders import GONE, Break, Case, manifest

from workload_rules import exposure

_INTERNAL: Final = "'service.beta.kubernetes.io/azure-load-balancer-internal'"
SERVICE: Final = manifest("""
apiVersion: v1
kind: Service
metadata:
  name: chat
  namespace: ml-serving
  annotations: {service.beta.kubernetes.io/azure-load-balancer-internal: "true"}
spec: {ports: [{port: 80}], type: LoadBalancer}
""")
CLOSED: Final = manifest("""
apiVersion: v1
kind: Service
metadata: {name: rank, namespace: ml-serving}
spec: {ports: [{port: 80}]}
""")
INGRESS: Final = manifest("""
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: chat, namespace: ml-serving, annotations: {alb.ingress.kubernetes.io/scheme: internal}}
spec:
  tls: [{hosts: [chat.example.com], secretName: chat}]
  rules: [{host: chat.example.com, http: {paths: []}}]
""")
ROUTE: Final = manifest("""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: chat, namespace: ml-serving}
spec: {parentRefs: [{name: edge, namespace: shared}], hostnames: [chat.example.com]}
""")
GATEWAY: Final = manifest("""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: own, namespace: ml-serving}
spec: {gatewayClassName: internal, listeners: [{name: web, port: 443, protocol: HTTPS, hostname: "*.ml.example.com"}]}
""")
_SERVICE: Final = "Service ml-serving/chat"
_INGRESS: Final = "Ingress ml-serving/chat"
_ROUTE: Final = "HTTPRoute ml-serving/chat"
_GATEWAY: Final = "Gateway ml-serving/own"
_INSIDE: Final = (
    "make it internal, such as by service.beta.kubernetes.io/aws-load-balancer-internal: true, or list it under"
    " `public`"
)

CASES: Final = (
    Case(
        name="external addresses",
        rule=exposure.no_external_ips,
        given={"service": SERVICE, "closed": CLOSED},
        also=[("service: spec.externalIPs", [])],
        breaks=[
            Break(
                "closed: spec.externalIPs",
                ["10.1.2.3", "10.1.2.4"],
                "Service ml-serving/rank: sets externalIPs 10.1.2.3, 10.1.2.4; remove spec.externalIPs",
            )
        ],
        unknown={"service: spec.externalIPs": _SERVICE},
    ),
    Case(
        name="types of Services",
        rule=exposure.service_types_reviewed,
        given={"service": SERVICE, "closed": CLOSED},
        settings={"services": ["ml-serving/chat"]},
        also=[
            ("closed: spec.type", "ClusterIP"),
            ("service: spec.type", "NodePort"),
            ("service! name", "svc-1a2b3c"),
            ("service: metadata", {"namespace": "ml-serving"}),
        ],
        breaks=[
            Break(
                "closed: spec.type",
                of_type,
                f"Service ml-serving/rank: has type {of_type}; set type: ClusterIP, or list it under `services`",
            )
            for of_type in ("LoadBalancer", "NodePort", "ExternalName")
        ],
        unknown={"closed: spec.type": "Service ml-serving/rank"},
    ),
    Case(
        name="types of the platform's Services",
        rule=exposure.service_types_reviewed,
        given={"closed": CLOSED},
        settings={"platform": ["edge"]},
        also=[("closed: metadata.namespace", "edge")],
        breaks=[
            Break(
                "closed: spec.type",
                "LoadBalancer",
                "Service ml-serving/rank: has type LoadBalancer; set type: ClusterIP, or list it under `services`",
            )
        ],
    ),
    Case(
        name="public load balancers",
        rule=exposure.load_balancers_internal,
        given={"service": SERVICE, "closed": CLOSED, "ingress": INGRESS, "route": ROUTE, "gateway": GATEWAY},
        settings={"public": ["ml-public/*"]},
        also=[
            ("service: spec.type", "ClusterIP"),
            ("service: spec.loadBalancerClass", "example.com/internal"),
            ("ingress: metadata.annotations", GONE),
            ("service: metadata", {"name": "chat", "namespace": "ml-public"}),
        ],
        breaks=[
            Break(
                "service: metadata.annotations",
                {"service.beta.kubernetes.io/aws-load-balancer-scheme": "internet-facing"},
                f"{_SERVICE}: sets service.beta.kubernetes.io/aws-load-balancer-scheme: internet-facing; {_INSIDE}",
            ),
            Break(
                f"service: metadata.annotations.{_INTERNAL}",
                GONE,
                f"{_SERVICE}: has type LoadBalancer without an annotation for internal load balancers; {_INSIDE}",
            ),
            Break(
                "ingress: metadata.annotations.'alb.ingress.kubernetes.io/scheme'",
                "internet-facing",
                f"{_INGRESS}: sets alb.ingress.kubernetes.io/scheme: internet-facing; {_INSIDE}",
            ),
            Break(
                "gateway: spec.infrastructure.annotations.'service.beta.kubernetes.io/aws-load-balancer-scheme'",
                "internet-facing",
                f"{_GATEWAY}: sets service.beta.kubernetes.io/aws-load-balancer-scheme: internet-facing; {_INSIDE}",
            ),
        ],
        unknown={"service: metadata.annotations": _SERVICE},
    ),
    Case(
        name="hosts",
        rule=exposure.route_hosts_reviewed,
        given={"service": SERVICE, "ingress": INGRESS, "route": ROUTE, "gateway": GATEWAY},
        settings={"hosts": ["ml-serving/chat.example.com", "ml-serving/*.ml.example.com"], "platform": ["edge"]},
        also=[
            ("route: spec.hostnames", ["a.ml.example.com", "chat.example.com"]),
            ("route: spec", {"hostnames": []}),
            ("gateway: spec.listeners", GONE),
        ],
        breaks=[
            Break(
                "ingress: spec.rules.0.host",
                "other.example.com",
                f"{_INGRESS}: claims host other.example.com; list it under `hosts`",
            ),
            Break(
                "ingress: spec.rules.0.host",
                GONE,
                f"{_INGRESS}: claims every host; set a host and list it under `hosts`",
            ),
            Break(
                "ingress: spec.tls.0.hosts",
                ["a.example.com", "b.example.com"],
                (
                    f"{_INGRESS}: claims host a.example.com; list it under `hosts`",
                    f"{_INGRESS}: claims host b.example.com; list it under `hosts`",
                ),
            ),
            Break(
                "ingress: spec.defaultBackend",
                {"service": {"name": "chat"}},
                f"{_INGRESS}: claims every host; set a host and list it under `hosts`",
            ),
            Break(
                "ingress: spec.backend",
                {"serviceName": "chat", "servicePort": 80},
                f"{_INGRESS}: claims every host; set a host and list it under `hosts`",
            ),
            Break(
                "ingress: metadata.annotations.'nginx.ingress.kubernetes.io/server-alias'",
                "a.ml.example.com, example.org",
                f"{_INGRESS}: claims host example.org; list it under `hosts`",
            ),
            Break(
                "service: metadata.annotations.'external-dns.alpha.kubernetes.io/hostname'",
                "api.example.com",
                f"{_SERVICE}: claims host api.example.com; list it under `hosts`",
            ),
            Break(
                "route: spec.hostnames",
                GONE,
                f"{_ROUTE}: claims every host; set a host and list it under `hosts`",
            ),
            Break(
                "route: metadata.namespace",
                "ml-research",
                "HTTPRoute ml-research/chat: claims host chat.example.com; list it under `hosts`",
            ),
            Break(
                "gateway: spec.listeners.0.hostname",
                GONE,
                f"{_GATEWAY}: claims every host; set a host and list it under `hosts`",
            ),
        ],
        unknown={"ingress: spec.rules.0.host": _INGRESS, "route: spec.hostnames": _ROUTE},
    ),
    Case(
        name="all hosts of a namespace in settings",
        rule=exposure.route_hosts_reviewed,
        given={"route": ROUTE},
        settings={"hosts": ["ml-serving/*"]},
        breaks=[
            Break("route: spec.hostnames", GONE, f"{_ROUTE}: claims every host; set a host and list it under `hosts`")
        ],
    ),
)
