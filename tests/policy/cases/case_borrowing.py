"""Cases for `workload_rules.borrowing`."""

from typing import Final

from policy_builders import GONE, Break, Case, manifest

from cases.platform import CLUSTER_QUEUE, GROUPS, LOCAL_QUEUE, ORG
from workload_rules import borrowing

OLD: Final = manifest("""
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: old, namespace: ml-serving}
spec: {clusterQueue: serving}
""")
_QUEUE: Final = "ClusterQueue serving"
_L4: Final = f"{_QUEUE}, flavor l4"
_GPU: Final = "queue: spec.resourceGroups.0.flavors.0.resources.1"
_GROUP: Final = "groups: spec.resourceGroups.0.flavors.0.resources.0"

CASES: Final = (
    Case(
        name="limits of borrowing",
        rule=borrowing.borrowing_bounded,
        given={"queue": CLUSTER_QUEUE, "groups": GROUPS, "org": ORG},
        settings={"maximum": {"nvidia.com/*": 8, "*": 1}},
        also=[(f"{_GPU}.borrowingLimit", "0"), ("queue: spec.cohortName", GONE), (f"{_GPU}.name", "example.com/fpga")],
        breaks=[
            Break(
                f"{_GPU}.borrowingLimit",
                GONE,
                f"{_L4}: no borrowingLimit for nvidia.com/gpu, so borrowing is unlimited; set borrowingLimit (0"
                " disables borrowing)",
            ),
            Break(
                f"{_GPU}.borrowingLimit",
                9,
                f"{_L4}: borrowingLimit 9 for nvidia.com/gpu exceeds the maximum (8); lower borrowingLimit",
            ),
            Break(
                f"{_GROUP}.borrowingLimit",
                GONE,
                "Cohort groups, flavor l4: no borrowingLimit for nvidia.com/gpu, so borrowing is unlimited; set"
                " borrowingLimit (0 disables borrowing)",
            ),
        ],
        unknown={f"{_GPU}.borrowingLimit": _L4},
    ),
    Case(
        name="a cohort to share with",
        rule=borrowing.cohort_named,
        given={"queue": CLUSTER_QUEUE, "groups": GROUPS, "org": ORG},
        also=[
            (
                "queue: spec",
                {"preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "Never"}}},
            ),
            ("queue: spec", {"cohort": "groups", "preemption": {"reclaimWithinCohort": "Any"}}),
        ],
        breaks=[
            Break(
                "queue: spec.cohortName",
                GONE,
                (
                    f"{_QUEUE}: borrowingLimit is set without a cohort; set cohortName, or remove borrowingLimit",
                    (
                        f"{_QUEUE}: reclaimWithinCohort is Any without a cohort; set cohortName, or set"
                        " reclaimWithinCohort to Never"
                    ),
                ),
            ),
            Break(
                "queue: spec",
                {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
                f"{_QUEUE}: borrowWithinCohort is LowerPriority without a cohort; set cohortName, or set"
                " borrowWithinCohort to Never",
            ),
            Break(
                "queue: spec",
                {"resourceGroups": [{"flavors": [{"name": "l4", "resources": [{"name": "cpu", "lendingLimit": 1}]}]}]},
                f"{_QUEUE}: lendingLimit is set without a cohort; set cohortName, or remove lendingLimit",
            ),
            Break(
                "groups: spec.parentName",
                GONE,
                "Cohort groups: borrowingLimit is set without a cohort; set parentName, or remove borrowingLimit",
            ),
        ],
        unknown={"queue: spec.cohortName": _QUEUE},
    ),
    Case(
        name="namespaces of a queue",
        rule=borrowing.cluster_queue_selects,
        given={"queue": CLUSTER_QUEUE},
        also=[("queue: spec.namespaceSelector", {})],
        breaks=[
            Break(
                "queue: spec.namespaceSelector",
                GONE,
                f"{_QUEUE}: namespaceSelector is not set, so no workload is admitted; set namespaceSelector: {{}}"
                " for all namespaces, or select namespaces by label",
            )
        ],
        unknown={"queue: spec.namespaceSelector": _QUEUE},
    ),
    Case(
        name="the version of the API",
        rule=borrowing.kueue_version,
        given={"local": LOCAL_QUEUE, "groups": GROUPS},
        also=[("local: apiVersion", GONE)],
        breaks=[Break("local", OLD, "LocalQueue ml-serving/old: apiVersion is kueue.x-k8s.io/v1beta1; use v1beta2")],
        unknown={"local: apiVersion": "LocalQueue ml-serving/serving"},
    ),
)
