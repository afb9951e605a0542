"""Cases for `workload_rules.queues`."""

from typing import Final

from policy_builders import GONE, Break, Case, changed, manifest

from cases.platform import CLUSTER_QUEUE, FLAVOR, GROUPS, LOCAL_QUEUE, ORG, SERVER
from workload_rules import queues

NIGHTS: Final = manifest("""
apiVersion: batch/v1
kind: CronJob
metadata: {name: nights, namespace: ml-serving}
spec:
  jobTemplate:
    metadata: {labels: {kueue.x-k8s.io/queue-name: serving}}
    spec: {template: {spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
""")
TRAIN: Final = manifest("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune, namespace: ml-serving, labels: {kueue.x-k8s.io/queue-name: serving}}
spec: {runtimeRef: {name: torch-distributed}}
""")
_ALL: Final = {"local": LOCAL_QUEUE, "queue": CLUSTER_QUEUE, "groups": GROUPS, "org": ORG, "flavor": FLAVOR}
_FLAVOR: Final = "queue: spec.resourceGroups.0.flavors.0.name"
_NOTHING: Final = "which does not exist in this stack; correct the name or create it"
_LABEL: Final = "metadata.labels.'kueue.x-k8s.io/queue-name'"
_POD: Final = "server: spec.template.metadata.labels.'kueue.x-k8s.io/queue-name'"
_NONE: Final = (
    "but namespace ml-serving has no LocalQueue with that name; correct kueue.x-k8s.io/queue-name or create the"
    " LocalQueue"
)

CASES: Final = (
    Case(
        name="objects that queues reference",
        rule=queues.queue_references,
        given=_ALL,
        also=[
            ("flavor", GONE),
            ("groups: spec.parentName", GONE),
            ("queue: spec.cohortName", GONE),
            ("queue: spec.cohortName", ""),
        ],
        breaks=[
            Break(
                "local: spec.clusterQueue",
                "servign",
                f"LocalQueue ml-serving/serving: spec.clusterQueue references ClusterQueue servign, {_NOTHING}",
            ),
            Break(
                "queue: spec.cohortName",
                "group",
                f"ClusterQueue serving: spec.cohortName references Cohort group, {_NOTHING}",
            ),
            Break(
                "queue: spec",
                {"cohort": "group"},
                f"ClusterQueue serving: spec.cohort references Cohort group, {_NOTHING}",
            ),
            Break("org", GONE, f"Cohort groups: spec.parentName references Cohort org, {_NOTHING}"),
            Break(
                _FLAVOR,
                "l40",
                f"ClusterQueue serving: spec.resourceGroups.0.flavors.0.name references ResourceFlavor l40, {_NOTHING}",
            ),
        ],
        unknown={
            "local: spec.clusterQueue": "LocalQueue ml-serving/serving",
            _FLAVOR: "ClusterQueue serving",
            "queue: metadata.name": "LocalQueue ml-serving/serving",
        },
    ),
    Case(
        name="objects created outside the stack",
        rule=queues.queue_references,
        given={"local": LOCAL_QUEUE},
        settings={"queues": ["serving", "research-*"]},
        also=[("local: spec.clusterQueue", "research-a")],
        breaks=[
            Break(
                "local: spec.clusterQueue",
                "servign",
                f"LocalQueue ml-serving/serving: spec.clusterQueue references ClusterQueue servign, {_NOTHING}",
            )
        ],
    ),
    Case(
        name="parents of cohorts",
        rule=queues.cohorts_are_a_tree,
        given={"groups": GROUPS, "org": ORG},
        also=[
            ("org: spec.parentName", "somebody-elses"),
            ("org: metadata", {"generateName": "org-"}),
            ("more", changed({"it": GROUPS}, "it: metadata", {"generateName": "groups-"})["it"]),
        ],
        breaks=[
            Break(
                "org: spec.parentName",
                "groups",
                (
                    "Cohort groups: cohort cycle: groups → org → groups; remove one parentName",
                    "Cohort org: cohort cycle: org → groups → org; remove one parentName",
                ),
            ),
            Break("org: spec.parentName", "org", "Cohort org: cohort cycle: org → org; remove one parentName"),
        ],
        unknown={"org: spec.parentName": ("Cohort groups", "Cohort org")},
    ),
    Case(
        name="queues that workloads reference",
        rule=queues.queue_exists,
        given={"server": SERVER, "nights": NIGHTS, "train": TRAIN, "local": LOCAL_QUEUE},
        also=[
            ("local", GONE),
            (f"server: {_LABEL}", GONE),
            (_POD, "serving"),
            (f"nights: {_LABEL}", "night"),  # Kueue reads the labels of its jobs.
        ],
        breaks=[
            Break(f"server: {_LABEL}", "chat", f"Deployment ml-serving/chat: references queue chat, {_NONE}"),
            Break(_POD, "chat", f"Deployment ml-serving/chat: references queue chat, {_NONE}"),
            Break(f"train: {_LABEL}", "tune", f"TrainJob ml-serving/tune: references queue tune, {_NONE}"),
            Break(
                f"nights: spec.jobTemplate.{_LABEL}",
                "night",
                f"CronJob ml-serving/nights: references queue night, {_NONE}",
            ),
            Break(
                "server: metadata.namespace",
                "ml-research",
                "Deployment ml-research/chat: references queue serving, but namespace ml-research has no LocalQueue"
                " with that name; correct kueue.x-k8s.io/queue-name or create the LocalQueue",
            ),
        ],
        unknown={f"server: {_LABEL}": "Deployment ml-serving/chat"},
    ),
    Case(
        name="queues created outside the stack",
        rule=queues.queue_exists,
        given={"server": SERVER},
        settings={"queues": ["ml-serving/serving"]},
        breaks=[Break(f"server: {_LABEL}", "chat", f"Deployment ml-serving/chat: references queue chat, {_NONE}")],
    ),
    Case(
        name="resources that a queue covers",
        rule=queues.queue_covers_gpus,
        given={"server": SERVER, "nights": NIGHTS, "local": LOCAL_QUEUE, "queue": CLUSTER_QUEUE},
        also=[("queue", GONE), ("local", GONE), (f"server: {_LABEL}", GONE)],
        breaks=[
            Break(
                "server: spec.template.spec.containers.0.resources.limits",
                {"nvidia.com/mig-1g.10gb": 1},
                "Deployment ml-serving/chat: requests nvidia.com/mig-1g.10gb, which ClusterQueue serving does not"
                " cover; add it to coveredResources with a quota, or use another queue",
            ),
            Break(
                "queue: spec.resourceGroups.0.coveredResources",
                ["cpu"],
                tuple(
                    f"{place}: requests nvidia.com/gpu, which ClusterQueue serving does not cover; add it to"
                    " coveredResources with a quota, or use another queue"
                    for place in ("Deployment ml-serving/chat", "CronJob ml-serving/nights")
                ),
            ),
        ],
        unknown={
            "local: spec.clusterQueue": ("Deployment ml-serving/chat", "CronJob ml-serving/nights"),
            "queue: spec.resourceGroups": ("Deployment ml-serving/chat", "CronJob ml-serving/nights"),
        },
    ),
    Case(
        name="a pod that names its queue in a template",
        rule=queues.queue_covers_gpus,
        given=changed(
            changed({"server": SERVER, "local": LOCAL_QUEUE, "queue": CLUSTER_QUEUE}, f"server: {_LABEL}", GONE),
            _POD,
            "serving",
        ),
        breaks=[
            Break(
                "queue: spec.resourceGroups",
                [],
                "Deployment ml-serving/chat: requests nvidia.com/gpu, which ClusterQueue serving does not cover;"
                " add it to coveredResources with a quota, or use another queue",
            )
        ],
    ),
)
