"""Cases for `workload_rules.tenancy`."""

from dataclasses import replace
from typing import Final

from policy_builders import GONE, Break, Case, changed, manifest

from workload_rules import tenancy

SPACE: Final = manifest("""
apiVersion: v1
kind: Namespace
metadata:
  name: ml-research
  labels:
    owner: research
    cost-center: rd-001
    environment: prod
    pod-security.kubernetes.io/enforce: baseline
""")
SYSTEM: Final = replace(
    manifest("""
apiVersion: v1
kind: Namespace
metadata: {name: gpu-operator, labels: {pod-security.kubernetes.io/enforce: privileged}}
"""),
    name="in-the-program",
)
DENY: Final = manifest("""
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: default-deny, namespace: ml-research}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
""")
ALLOW: Final = manifest("""
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow-team, namespace: ml-research}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}
""")
JOB: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: nightly, namespace: ml-research}
spec:
  template:
    spec:
      containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]
""")
QUOTA: Final = manifest("""
apiVersion: v1
kind: ResourceQuota
metadata: {name: gpus, namespace: ml-research}
spec: {hard: {requests.nvidia.com/gpu: 32}}
""")
OTHER_QUOTA: Final = manifest("""
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: ml-research}
spec: {hard: {requests.cpu: 32}}
""")
_SPACE: Final = "Namespace ml-research"
_ENFORCE: Final = "space: metadata.labels.'pod-security.kubernetes.io/enforce'"
_LABELS: Final = "space: metadata.labels"


def _open(directions: str, listed: str) -> str:
    return (
        f"{_SPACE}: no NetworkPolicy denies {directions} by default; create one with podSelector {{}}, policyTypes"
        f" [{listed}] and no rules"
    )


def _no_quota(resource: str) -> str:
    return (
        f"Job ml-research/nightly: requests {resource}, but no ResourceQuota of namespace ml-research has"
        f" requests.{resource}; create one, or list the namespace under `external`"
    )


CLAIMING: Final = manifest("""
apiVersion: batch/v1
kind: Job
metadata: {name: claiming, namespace: ml-research}
spec:
  template:
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: eight}]
      containers: [{name: train, resources: {claims: [{name: gpu}]}}]
""")
TEMPLATE: Final = manifest("""
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: eight, namespace: ml-research}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 8}}]}}}
""")
CLAIM: Final = manifest("""
apiVersion: resource.k8s.io/v1beta2
kind: ResourceClaim
metadata: {name: shared, namespace: ml-research}
spec:
  devices:
    requests:
    - name: gpu
      firstAvailable:
      - {name: whole, deviceClassName: gpu.nvidia.com, count: 8}
      - {name: part, deviceClassName: mig.nvidia.com, count: 8}
""")
DOMAIN: Final = manifest("""
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {name: claiming, namespace: ml-research}
spec: {numNodes: 0, channel: {resourceClaimTemplate: {name: eight}}}
""")
_KEY: Final = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices"
DEVICES: Final = manifest("""
apiVersion: v1
kind: ResourceQuota
metadata: {name: devices, namespace: ml-research}
spec:
  hard:
    gpu.nvidia.com.deviceclass.resource.k8s.io/devices: 8
    mig.nvidia.com.deviceclass.resource.k8s.io/devices: 8
""")


def _no_devices(claim: str) -> str:
    return (
        f"Job ml-research/claiming: claims gpu.nvidia.com by {claim}, but no ResourceQuota of namespace ml-research has"
        f" {_KEY}; create one, or list the namespace under `external`"
    )


CASES: Final = (
    Case(
        name="a Pod Security level",
        rule=tenancy.pod_security_level,
        given={"space": SPACE, "system": SYSTEM},
        also=[(_ENFORCE, "restricted")],
        breaks=[
            Break(
                _ENFORCE,
                GONE,
                f"{_SPACE}: enforces no Pod Security level; set label pod-security.kubernetes.io/enforce: baseline",
            ),
            Break(
                "space: metadata.labels",
                GONE,
                f"{_SPACE}: enforces no Pod Security level; set label pod-security.kubernetes.io/enforce: baseline",
            ),
            Break(_ENFORCE, "privileged", f"{_SPACE}: enforces the Pod Security level privileged; set baseline"),
        ],
        unknown={_ENFORCE: _SPACE},
    ),
    Case(
        name="the Pod Security level restricted",
        rule=tenancy.pod_security_level,
        given={"system": SYSTEM},
        settings={"level": "restricted"},
        breaks=[Break("space", SPACE, f"{_SPACE}: enforces the Pod Security level baseline; set restricted")],
    ),
    Case(
        name="traffic into a namespace",
        rule=tenancy.default_deny,
        given={"space": SPACE, "system": SYSTEM, "deny": DENY, "allow": ALLOW},
        also=[("deny: spec.policyTypes", GONE), ("deny: spec.policyTypes", ["Ingress"]), ("deny: spec", {})],
        breaks=[
            Break("deny", GONE, _open("Ingress", "Ingress")),
            Break("deny: metadata.namespace", "ml-other", _open("Ingress", "Ingress")),
            Break("deny: metadata.namespace", GONE, _open("Ingress", "Ingress")),
            Break("deny: spec.policyTypes", ["Egress"], _open("Ingress", "Ingress")),
            Break("deny: spec.podSelector.matchLabels", {"app": "a"}, _open("Ingress", "Ingress")),
            Break(
                "deny: spec.podSelector.matchExpressions",
                [{"key": "app", "operator": "Exists"}],
                _open("Ingress", "Ingress"),
            ),
            Break("deny: spec.ingress", [{}], _open("Ingress", "Ingress")),
        ],
        unknown={"deny: spec.policyTypes": _SPACE},
    ),
    Case(
        name="traffic out of a namespace as well",
        rule=tenancy.default_deny,
        given={"space": SPACE, "deny": DENY},
        settings={"egress": True},
        also=[("deny: spec", {"podSelector": {}, "egress": []})],
        breaks=[
            Break("deny", GONE, _open("Ingress and Egress", "Ingress, Egress")),
            Break("deny: spec.policyTypes", ["Ingress"], _open("Egress", "Egress")),
            Break("deny: spec.egress", [{}], _open("Egress", "Egress")),
        ],
    ),
    Case(
        name="a quota of GPUs",
        rule=tenancy.gpu_namespace_quota,
        given={"job": JOB, "quota": QUOTA, "other": OTHER_QUOTA},
        also=[
            ("job: spec.template.spec.containers.0.resources", {}),
            ("job: metadata.namespace", "kueue-system"),
            ("other: spec.hard", {"requests.cpu": 1, "requests.nvidia.com/gpu": 1}),
        ],
        breaks=[
            Break("quota", GONE, _no_quota("nvidia.com/gpu")),
            Break("quota: spec.hard", {"limits.nvidia.com/gpu": 32}, _no_quota("nvidia.com/gpu")),
            Break("quota: metadata.namespace", "ml-other", _no_quota("nvidia.com/gpu")),
            Break(
                "job: spec.template.spec.containers.0.resources.limits",
                {"nvidia.com/mig-1g.10gb": 1},
                _no_quota("nvidia.com/mig-1g.10gb"),
            ),
        ],
        unknown={"quota: spec.hard": "Job ml-research/nightly"},
    ),
    Case(
        name="a quota of claimed GPUs",
        rule=tenancy.gpu_namespace_quota,
        given={"job": CLAIMING, "template": TEMPLATE, "quota": DEVICES, "claim": CLAIM},
        also=[
            ("template: spec.spec.devices.requests.0", {"name": "nic", "deviceClassName": "nic.example.com"}),
            ("quota: spec.hard", {_KEY: 0}),
            ("job: spec.template.spec.resourceClaims", [{"name": "gpu", "resourceClaimName": "shared"}]),
            ("job: metadata.namespace", "kueue-system"),
        ],
        breaks=[
            Break("quota", GONE, _no_devices("ResourceClaimTemplate eight")),
            Break("quota: spec.hard", {"requests.nvidia.com/gpu": 8}, _no_devices("ResourceClaimTemplate eight")),
            Break("quota: metadata.namespace", "ml-other", _no_devices("ResourceClaimTemplate eight")),
        ],
        unknown={"template: spec.spec.devices": "Job ml-research/claiming"},
    ),
    Case(
        name="channels of a ComputeDomain, which have no quota",
        rule=tenancy.gpu_namespace_quota,
        given={"job": CLAIMING, "domain": DOMAIN},
    ),
    Case(
        name="a quota of GPUs that a claim or an alternative names",
        rule=tenancy.gpu_namespace_quota,
        given={"template": TEMPLATE, "claim": CLAIM},
        breaks=[
            Break(
                "job",
                changed(
                    {"job": CLAIMING},
                    "job: spec.template.spec.resourceClaims",
                    [{"name": "gpu", "resourceClaimName": "shared"}],
                )["job"],
                (
                    _no_devices("ResourceClaim shared"),
                    _no_devices("ResourceClaim shared").replace(" gpu.nvidia", " mig.nvidia"),
                ),
            )
        ],
    ),
    Case(
        name="quotas created outside the stack",
        rule=tenancy.gpu_namespace_quota,
        given={"job": JOB},
        settings={"external": ["ml-*"]},
        breaks=[
            Break(
                "job: metadata.namespace",
                "default",
                "Job default/nightly: requests nvidia.com/gpu, but no ResourceQuota of namespace default has"
                " requests.nvidia.com/gpu; create one, or list the namespace under `external`",
            )
        ],
    ),
)
