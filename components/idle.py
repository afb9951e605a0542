"""CronJobs that free GPUs: of jobs whose GPUs are idle, and of pods that no Workload counts."""

from typing import Final
from urllib.parse import urlsplit

from gpu_tenancy.model.catalogue.access import Rule
from gpu_tenancy.model.kinds import kinds, servers
from gpu_tenancy.model.names import IDLE
from gpu_tenancy.model.plan.guards import UNCOUNTED, GuardsPlan
from gpu_tenancy.model.plan.idle import RECLAIMER, IdlePlan

from .objects import Options, PlatformJob, read_scripts

_PAUSE: Final = 60  # seconds between two reads: Kueue and operators stop pods of a job that lost its quota
_STOPS: Final = 1800  # seconds within which an operator stops the pods of an evicted job, also if it is upgraded
_READ: Final = Rule(groups=("",), resources=("pods",), verbs=("list",), reason="which pods with GPUs a Workload has")
_TELL: Final = Rule(groups=("",), resources=("events",), verbs=("create",), reason="tell the owner")
_STOPPED: Final = tuple(kind for kind in kinds().values() if kind.integration and kind.suspend)


class IdleGpus(PlatformJob):
    """The CronJob for jobs of all teams, in a namespace of its own.

    Prometheus is read at its own address, without the account's token. Which pods belong to a Workload is in the
    annotation `kueue.x-k8s.io/workload` that Kueue sets on pods (`getPodSetsInfoFromStatus` in
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go).
    """

    account = RECLAIMER
    rules = (
        _READ,
        _TELL,
        Rule(
            groups=("kueue.x-k8s.io",),
            resources=("workloads",),
            verbs=("get", "list", "patch"),
            reason="how long GPUs are idle (an annotation), and stop or requeue the job (spec.active)",
        ),
    )
    script = read_scripts("cron_jobs", "reclaim_idle")

    def __init__(self, name: str, environment: str, plan: IdlePlan, opts: Options = None) -> None:
        server = urlsplit(plan.address)
        variables = {
            "SERVER": f"{server.scheme}://{server.netloc}",
            "QUERY": f"{server.path}/api/v1/query?query=gpu_tenancy:pod_busy_at",
            "ANNOTATION": IDLE,
            "SERVERS": " ".join(servers()),
            "TEAMS": "\n".join(
                f"{team} {idle.then} {idle.after} {idle.below:g} {' '.join(idle.spare)}".rstrip()
                for team, idle in plan.teams.items()
            ),
        }
        super().__init__(name, environment, variables, opts)


class UncountedPods(PlatformJob):
    """The CronJob that deletes pods with more GPUs than the Workload counts that Kueue wrote into them, and their job.

    Only where their Workload is gone or has finished, its job was evicted half an hour ago, or pods of the namespace
    hold more GPUs than its Workloads count, in two reads. It also deletes Workloads that were evicted then and keep
    quota without GPUs, and the job of one that Kueue then keeps, or whose other pods run. So GPUs are free after some
    time, whatever kept an operator from stopping pods. Pods of gangs, and pods that are older than Kueue, name no
    Workload. A job is read from the Workload, since tenants can write owners of pods.
    """

    account = UNCOUNTED
    rules = (
        _READ,
        _TELL,
        Rule(groups=("",), resources=("pods",), verbs=("delete",), reason="free GPUs that no Workload counts"),
        Rule(groups=("kueue.x-k8s.io",), resources=("workloads",), verbs=("list", "delete"), reason="what they count"),
        *(
            Rule(groups=(kind.group,), resources=(kind.plural,), verbs=("get", "delete"), reason="create pods again")
            for kind in _STOPPED
        ),
    )
    script = read_scripts("cron_jobs", "delete_uncounted")

    def __init__(self, name: str, environment: str, guards: GuardsPlan, opts: Options = None) -> None:
        stopped = (f"{kind.kind}.{kind.group}" for kind in _STOPPED)
        given = {"GPUS": guards.max_per_node, "TEAMS": guards.teams, "KINDS": stopped}
        texts = {key: " ".join(values) for key, values in given.items()}
        super().__init__(name, environment, {**texts, "PAUSE": str(_PAUSE), "STOPS": str(_STOPS)}, opts)
