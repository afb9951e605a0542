"""`tenancy local up`: deploys a stack to the embedded platform and verifies its guarantees."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, Literal, TypeAlias

from gpu_tenancy.base.errors import ConsoleError
from gpu_tenancy.base.json import at, text_at
from gpu_tenancy.base.progress import Report
from gpu_tenancy.base.texts import plural
from gpu_tenancy.cluster.pods import deleted, ended, name_of, namespace_of
from gpu_tenancy.deploy.pulumi_cli import PulumiCli, find_pulumi
from gpu_tenancy.embedded import drivers
from gpu_tenancy.embedded.controllers import table
from gpu_tenancy.embedded.controllers.launching import Wanted
from gpu_tenancy.embedded.controllers.table import Row, read_rows
from gpu_tenancy.embedded.definitions import fetch
from gpu_tenancy.embedded.definitions.pins import needed, read_pins
from gpu_tenancy.embedded.nodes import bring_nodes, node_shapes
from gpu_tenancy.embedded.parts import API_SERVER
from gpu_tenancy.embedded.platform import Carried, Platform
from gpu_tenancy.embedded.programs import find_programs
from gpu_tenancy.engine.objects import KubernetesObject, waves
from gpu_tenancy.engine.project import Preview, rendered
from gpu_tenancy.kube.apply import ApplyError, apply
from gpu_tenancy.kube.client import Cluster, Manifest
from gpu_tenancy.kube.errors import UNAUTHORIZED, ApiError, UnknownKindError, UnreachableError, WaitTimeoutError
from gpu_tenancy.kube.pruning import check_prunable
from gpu_tenancy.kube.references import Reference
from gpu_tenancy.local.checks import Check, Controllers, check_all
from gpu_tenancy.local.checks.check import Verdict, verdict
from gpu_tenancy.local.checks.metrics import withdraw
from gpu_tenancy.local.checks.workloads import check_models
from gpu_tenancy.local.settling import in_turns, settle
from gpu_tenancy.local.summary import Composition, Summary, composition, summarise
from gpu_tenancy.model.catalogue.operators import operators as catalogue
from gpu_tenancy.model.names import COMPUTE_DOMAINS
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.needs import has
from gpu_tenancy.model.plan.shares import Tree
from gpu_tenancy.model.plan.workloads import DEPLOYMENT, GANG
from gpu_tenancy.model.project import Declared, declared
from gpu_tenancy.model.spec import Stack
from gpu_tenancy.model.spec.data import SNAPSHOT_GROUP
from gpu_tenancy.model.spec.roles import KINDS

ControllerChoice: TypeAlias = Literal["all", "none"]
"""Which operators' controllers run: all that the stack uses, or none, so that jobs start without queueing."""
Engine: TypeAlias = Literal["pulumi", "server-side apply"]

ACTIONS: Final = ("created", "changed", "replaced", "pruned")  # changes of an object by an apply


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of `up`; `changes` and `nodes` count created, changed, replaced and pruned objects, without zeros."""

    preview: Preview
    engine: Engine  # the program that applied the objects
    changes: Mapping[str, int]
    nodes: Mapping[str, int]
    objects: int  # of the stack
    kubeconfig: Path
    server: str
    summary: Summary
    checks: tuple[Check, ...]
    composition: Composition

    @property
    def verdict(self) -> Verdict:
        """The number of passed checks, and reasons for others."""
        return verdict(self.checks)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `up`; `foreshow` gets the preview to read if programs must be downloaded or built first."""

    controllers: ControllerChoice = "all"
    replace: bool = False  # may delete another stack with the whole platform
    foreshow: Callable[[Preview], None] = lambda _: None
    service: str = ""  # such as `gke`, for the API server's admission settings; empty keeps the present ones


DEFAULTS: Final = Options()


def up(name: str, platform: Platform, report: Report, project: Path, options: Options = DEFAULTS) -> Outcome:
    """Deploys a stack of a project folder to a platform and verifies its guarantees; reports a line for each stage.

    Nothing is changed if the stack is invalid. One deployment waits for another one to the same platform. Another
    stack is deleted only when this one is rendered and all programs and definitions for it are on this machine.

    Raises:
        StackError: the stack file is invalid; it has every problem.
        RenderError: the rendered resources cannot be deployed.
        ConsoleError: the platform carries another stack, does not start or rejects an object.
    """
    with platform.deploying(report):
        try:
            return _up(name, platform, report, project, options)
        except (ApiError, ApplyError, UnreachableError, WaitTimeoutError) as error:
            platform.check()  # a part that exited is the cause
            if not isinstance(error, ApiError):
                raise
            fix = f"see {platform.places.log(API_SERVER)}, then run the same command again"
            if error.status == UNAUTHORIZED:
                fix = "run `tenancy local down`, then the same command again"
            raise ConsoleError(f"the API server of the embedded platform rejected a request: {error}", fix) from error


def _up(name: str, platform: Platform, report: Report, project: Path, options: Options) -> Outcome:
    report(f"reading stack {name}")
    read = declared(name, project)
    operators = table.rows_of(Tree(read.stack)) if options.controllers == "all" else dict[str, Row]()
    other = other_stack(platform, name)
    prepared = platform.prepared and table.prepared(operators, platform.cache)
    if prepared and not other:
        stack_preview = _rendered_meanwhile(read, platform, operators, report, options.service)
    else:  # the user may have to decide, or can read the preview while something is built
        stack_preview = rendered(read, onto=platform.kubeconfig)
    planned, tree = plan(stack_preview.stack), Tree(stack_preview.stack)
    if other and not options.replace:
        raise not_replaced(other, name)
    if not prepared:
        options.foreshow(stack_preview)
    if not platform.prepared:
        report("first run: programs are downloaded or built, which takes 2 to 15 minutes on two cores")
    # Downloads come before the build, so that a missing network is reported in seconds and not after minutes.
    pins = needed(read_pins(), groups_of(planned, stack_preview.objects), operators)
    definitions = fetch(pins, platform.cache, report)
    if other:
        find_programs(platform.cache, report)
        table.find(operators, platform.cache, report)
        report(f"deleting stack {other}")
        platform.down(report)
    platform.up(report, options.service, definitions)
    with platform.cluster() as cluster:
        withdraw(cluster)
        wanted, unavailable = _wanted(platform, stack_preview, operators, report)
        later = platform.controllers.superfluous(wanted)
        with ThreadPoolExecutor(1) as pool:
            bringing = pool.submit(bring_nodes, cluster, node_shapes(stack_preview.stack))
            if not later:
                platform.controllers.bring(cluster, wanted, platform.cache, report)
            report("creating the nodes of the pools")
            nodes = bringing.result()
        drivers.bring_channels(cluster, stack_preview.stack)
        _bring_volumes(cluster, planned, stack_preview.stack)
        engine = _engine(platform, name, len(stack_preview.objects))
        report(f"applying {len(stack_preview.objects)} objects with {engine}")
        changes = (
            _by_pulumi(platform, stack_preview, project)
            if engine == "pulumi"
            else _by_apply(cluster, platform, stack_preview, report)
        )
        _bring_rest(cluster, planned, stack_preview.stack)
        if later:  # controllers that are no longer needed have removed the finalizers of pruned objects
            platform.controllers.bring(cluster, wanted, platform.cache, report)
        report("waiting for the controllers and the scheduler")
        for line in settle(cluster, planned, report):
            report(f"not ready: {line}")
        report("verifying the guarantees")
        controllers = Controllers(platform.controllers.running(), unavailable)
        checks = tuple(check_all(cluster, planned, tree, controllers, report))
        summary = summarise(cluster, planned, tree)
        return Outcome(
            preview=stack_preview,
            engine=engine,
            changes={action: changes[action] for action in ACTIONS if changes[action]},
            nodes={action: nodes[action] for action in ACTIONS if nodes[action]},
            objects=len(stack_preview.objects),
            kubeconfig=platform.kubeconfig,
            server=cluster.server,
            summary=summary,
            checks=(*checks, check_models(summary.astray)),
            composition=composition(cluster.server_version(), platform.controllers.recorded(), planned, tree),
        )


def _bring_volumes(cluster: Cluster, planned: Plan, stack: Stack) -> None:
    claims = [claim for team in planned.teams for claim in team.claims]
    homes = {team.namespace.name: team.notebooks.home for team in planned.teams if team.notebooks}
    drivers.bring_volumes(cluster, claims, homes, default=has(stack, "defaultStorageClass"))
    drivers.remove_claims(cluster, [cached for team in planned.teams for cached in team.cached])


def _bring_rest(cluster: Cluster, planned: Plan, stack: Stack) -> None:
    """Creates the objects that other programs and people create in the namespaces of a real cluster."""
    drivers.bring_claims(cluster, [cached for team in planned.teams for cached in team.cached])
    drivers.bring_secrets(cluster, stack)
    if planned.guards.channels:
        drivers.bring_templates(cluster)


def _rendered_meanwhile(
    read: Declared, platform: Platform, operators: Mapping[str, Row], report: Report, service: str
) -> Preview:
    """Renders a valid stack; meanwhile starts the platform and installs the definitions of the operators."""
    # A platform that did not exist is removed if the stack cannot be rendered.

    def start() -> None:
        platform.up(report, service, fetch(needed(read_pins(), (), operators), platform.cache, report))

    # Here, because the program imports packages meanwhile that both have: two threads that import each half of a circle
    # of modules see unfinished ones.
    import_module("gpu_tenancy.kube.transport")
    new = not platform.places.home.exists()
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start)
        try:
            stack_preview = rendered(read, onto=platform.kubeconfig)
        except BaseException:
            wait([starting])
            if new:
                platform.down(report)
            raise
        starting.result()
    return stack_preview


def _wanted(
    platform: Platform, stack_preview: Preview, operators: Mapping[str, Row], report: Report
) -> tuple[tuple[Wanted, ...], Mapping[str, str]]:
    """The charts whose controllers run, and why others do not; reports programs that are not available."""
    if not operators:
        return (), dict.fromkeys(read_rows(), "no controllers run here (--controllers none)")
    found, unavailable = table.find(operators, platform.cache, report)
    for reason in dict.fromkeys(unavailable.values()):
        missing = ", ".join(sorted(program for program, why in unavailable.items() if why == reason))
        report(f"not started: {missing}: {reason}; set {table.FOLDER} to a folder with these programs")
    started = table.wanted(stack_preview.declared, found)
    titles = {chart: catalogue()[row.operator].title if row.operator else chart for chart, row in operators.items()}
    charts = titles.keys() - {one.name for one in started}
    return started, {chart: f"{titles[chart]} could not be built" for chart in charts}


def groups_of(planned: Plan, objects: Iterable[KubernetesObject]) -> set[str]:
    """The API groups of a stack's objects, of objects of its CronJobs, and of kinds that its teams can create."""
    created = {SNAPSHOT_GROUP: planned.snapshot_classes is not None, COMPUTE_DOMAINS: planned.guards.channels}
    return api_groups(objects) | {group for group, needed in created.items() if needed}


def api_groups(objects: Iterable[KubernetesObject]) -> set[str]:
    """The API groups of a stack's objects; the core group is the empty string."""
    return {str(item.manifest["apiVersion"]).rpartition("/")[0] for item in objects}


def _engine(platform: Platform, name: str, objects: int) -> Engine:
    """The engine of the earlier `up`, whose state has the objects; for the first `up`, Pulumi if it is on the PATH."""
    carried = platform.carried()
    engine: Engine = "pulumi" if (carried.engine == "pulumi" if carried else find_pulumi()) else "server-side apply"
    platform.carry(Carried(name, engine, objects))
    return engine


def _by_pulumi(platform: Platform, stack_preview: Preview, project: Path) -> Counter[str]:
    program = find_pulumi()
    if program is None:
        raise ConsoleError(
            "this platform was deployed with Pulumi, but pulumi is not on the PATH",
            "add it to the PATH, or run `tenancy local down` first",
        )
    cli = PulumiCli(program, platform.places.home / "pulumi", project)
    objects = [Reference.of(item.manifest) for item in stack_preview.objects]
    return Counter(cli.up(stack_preview.name, platform.kubeconfig, objects))


def _by_apply(cluster: Cluster, platform: Platform, stack_preview: Preview, report: Report) -> Counter[str]:
    manifests = [[dict(item.manifest) for item in wave] for wave in in_turns(waves(stack_preview.objects))]
    inventory = platform.places.home / "applied.json"
    wanted = [Reference.of(manifest).key for wave in manifests for manifest in wave]
    check_prunable(cluster, inventory, wanted, platform.controllers.running(), stack_preview.name)
    changes = apply(cluster, manifests, inventory, adopt=stack_preview.stack.cluster.adopt)
    for correction in [change.correction for change in changes if change.corrected]:
        report(f"corrected fields that were changed outside the stack: {correction}")
    return Counter(change.action for change in changes)


_MANAGED: Final = "app.kubernetes.io/managed-by=gpu-tenancy"  # the namespaces of teams, with any engine

_KINDS: Final = (("server", DEPLOYMENT), ("job", *dict.fromkeys(kind.api for kind in KINDS.values()), GANG))


def other_stack(platform: Platform, name: str) -> str | None:
    """Name and content of another stack that the platform carries; None if it carries this one or none.

    `up --replace` deletes the whole platform and starts it again, with any engine. Pruning the other stack's objects in
    place can block: for `local` followed by `example-tree` it did not end within 180 seconds, because a TrainJob's
    Workload has a finalizer that only Kubeflow Trainer clears, and the new stack does not run it. Deleting the platform
    takes 2 seconds, and starting it with the new stack 24 (two cores, 2026-11-22). This also deletes leftovers of users
    and demos: the new stack finds the same platform as after `tenancy local down`.
    """
    carried = platform.carried()
    if carried is None or carried.name == name:
        return None
    running = ""
    if platform.kubeconfig.is_file():
        with platform.cluster() as cluster:
            counts = f"running: {', '.join(_counts(cluster))}" if cluster.ready() else "the platform is not running"
            running = f"; {counts}"
    return f"{carried.name} ({plural(carried.objects, 'object')}, deployed with {carried.engine}{running})"


def not_replaced(other: str, name: str) -> ConsoleError:
    """The error without `--replace`."""
    return ConsoleError(
        f"the embedded platform carries stack {other}",
        f"to delete it with everything on the platform and deploy {name}, run `tenancy local up {name} --replace`"
        f" (`make up STACK={name} REPLACE=1`)",
    )


def _counts(cluster: Cluster) -> Iterator[str]:
    """Counts teams and their objects, also objects that are not of the stack, but not objects with an owner."""
    there = cluster.list("v1", "Namespace", labels=_MANAGED)
    teams = [name_of(one) for one in there if not deleted(one)]
    yield plural(len(teams), "team")
    for noun, *kinds in _KINDS:
        found: list[Manifest] = []
        for kind in kinds:
            with suppress(UnknownKindError):  # The stack does not need its operator.
                found += [one for one in cluster.list(*kind, metadata_only=True) if namespace_of(one) in teams]
        yield plural(sum(not at(item, "metadata", "ownerReferences") for item in found), noun)
    pods = [pod for pod in cluster.list("v1", "Pod") if namespace_of(pod) in teams and not ended(pod)]
    yield plural(sum(bool(text_at(pod, "spec", "nodeName")) for pod in pods), "pod")
