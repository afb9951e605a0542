"""An admission policy that rejects Jobs whose GPUs Kueue would count as 0."""

from typing import Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding

from ..conventions import QUEUE

NAME: Final = "gpu-tenancy-gpu-requests"

_SPEC: Final = "object.spec.template.spec"
_EACH_ASKS: Final = (
    "!has(c.resources) || !has(c.resources.limits) || c.resources.limits.all(r, !r.contains('/') ||"
    " (has(c.resources.requests) && r in c.resources.requests))"
)


def gpu_requests(name: str, namespaces: tuple[str, ...], opts: pulumi.ResourceOptions) -> None:
    """Rejects queued Jobs that set GPUs as limits without requests, in namespaces with a default request for GPUs.

    A pod's requests default to its limits, but Kueue 0.19 counts a queued job before that, and uses the LimitRange's
    default request of 0: the job would be admitted without quota
    (https://github.com/kubernetes-sigs/kueue/issues/15020). Jobs without a queue are not checked. This policy always
    denies; the action of the guards does not apply to it.

    Args:
        name: resource name of the policy, and the prefix of its binding's.
        namespaces: the namespaces with such a default.
        opts: options with the parent.
    """
    policy = ValidatingAdmissionPolicy(
        name,
        metadata={"name": NAME},
        spec={
            "failure_policy": "Fail",
            "match_constraints": {
                "resource_rules": [
                    {
                        "api_groups": ["batch"],
                        "api_versions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["jobs"],
                    }
                ]
            },
            "match_conditions": [
                {
                    "name": "queued",
                    "expression": f"has(object.metadata.labels) && '{QUEUE}' in object.metadata.labels",
                }
            ],
            "validations": [
                {
                    "expression": f"{_SPEC}.containers.all(c, {_EACH_ASKS})",
                    "message": "a container states GPUs as limits without requests, and the queue would count none;"
                    " write the same number under requests",
                },
            ],
        },
        opts=opts,
    )
    ValidatingAdmissionPolicyBinding(
        f"{name}-binding",
        metadata={"name": NAME},
        spec={
            "policy_name": NAME,
            "validation_actions": ["Deny"],
            "match_resources": {
                "namespace_selector": {
                    "match_expressions": [
                        {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
                    ]
                }
            },
        },
        opts=pulumi.ResourceOptions(parent=opts.parent, depends_on=[policy]),
    )
