"""What keeps work out that a queue would count wrongly."""

from typing import Final

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding

from components.conventions import QUEUE

NAME: Final = "gpu-tenancy-gpu-requests"

_SPEC: Final = "object.spec.template.spec"
_EACH_ASKS: Final = (
    "!has(c.resources) || !has(c.resources.limits) || c.resources.limits.all(r, !r.contains('/') ||"
    " (has(c.resources.requests) && r in c.resources.requests))"
)


class Guards(pulumi.ComponentResource):
    """Refuses queued Jobs that state GPUs as limits without requests, in namespaces with a default of GPUs.

    A pod's requests follow its limits, but Kueue 0.19 counts a queued job before that happens and takes a LimitRange's
    default of 0 for the request: it would admit the job for nothing
    (https://github.com/kubernetes-sigs/kueue/issues/15020). Pods of no queue are not judged here.

    Example:
        >>> Guards("guards", plan(stack).gpu_defaults)
    """

    def __init__(self, name: str, namespaces: tuple[str, ...], opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:Guards", name, {}, opts)
        self.policy = ValidatingAdmissionPolicy(
            f"{name}-gpu-requests",
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
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.binding = ValidatingAdmissionPolicyBinding(
            f"{name}-gpu-requests-binding",
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
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.policy]),
        )
        self.register_outputs({"policy": NAME})
