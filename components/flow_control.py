"""API Priority and Fairness: one team's requests to the API server do not delay those of others."""

from typing import Any

import pulumi
from pulumi_kubernetes.flowcontrol.v1 import (
    FlowSchema,
    LimitedPriorityLevelConfigurationArgsDict,
    PriorityLevelConfiguration,
)

from gpu_tenancy.model.plan import flow_control as planned
from gpu_tenancy.model.plan.people import Subject


class FlowControl(pulumi.ComponentResource):
    """One priority level for the requests of all teams, with a flow for each user.

    Levels and flows of operators and of the control plane are those that Kubernetes has.

    Example:
        >>> FlowControl("flow-control", plan(stack).flows)
    """

    def __init__(self, name: str, flows: planned.FlowsPlan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpu-tenancy:tenancy:FlowControl", name, {}, opts)
        limited: LimitedPriorityLevelConfigurationArgsDict = {
            "nominal_concurrency_shares": planned.SHARES,
            "lendable_percent": planned.LENDABLE,
            "borrowing_limit_percent": planned.BORROWED,
            "limit_response": {
                "type": "Queue",
                "queuing": {"queues": planned.QUEUES, "hand_size": planned.HAND, "queue_length_limit": planned.LENGTH},
            },
        }
        level = PriorityLevelConfiguration(
            f"{name}-level",
            metadata={"name": planned.NAME},
            spec={"type": "Limited", "limited": limited},
            opts=pulumi.ResourceOptions(parent=self),
        )
        everything = {
            "verbs": ["*"],
            "api_groups": ["*"],
            "resources": ["*"],
            "namespaces": ["*"],
            "cluster_scope": True,
        }
        spec: Any = {
            "priority_level_configuration": {"name": planned.NAME},
            "matching_precedence": planned.PRECEDENCE,
            "distinguisher_method": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [_subject(subject) for subject in flows.subjects],
                    "resource_rules": [everything],
                    "non_resource_rules": [{"verbs": ["*"], "non_resource_urls": ["*"]}],
                }
            ],
        }
        FlowSchema(
            f"{name}-schema",
            metadata={"name": planned.NAME},
            spec=spec,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[level]),
        )
        self.register_outputs({})


def _subject(subject: Subject) -> dict[str, Any]:
    match subject.kind:
        case "Group":
            return {"kind": subject.kind, "group": {"name": subject.name}}
        case "User":
            return {"kind": subject.kind, "user": {"name": subject.name}}
        case "ServiceAccount":
            account = {"namespace": subject.namespace, "name": subject.name}
            return {"kind": subject.kind, "service_account": account}
