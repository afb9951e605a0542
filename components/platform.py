"""The platform of a stack: cluster, operators, dashboards and tenancy, in the order in which they need each other."""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions
from pulumi.runtime.settings import get_engine

from gpu_tenancy.model.names import adoptable
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.parts import CLUSTER, OPERATORS

from .clouds import Api, Cluster, open_cluster
from .config import configured_stack, mark_objects, metadata_of, of_part
from .objects import Component
from .operators import Infiniband, Observability, Operators
from .provider.inputs import filling
from .tenancy import GradualTenancy, Tenancy

PLATFORM: Final = "gpu-tenancy:index:Platform"
"""Type of the platform in programs of other languages."""


def deploy(project: Path) -> None:
    """Declares everything that the selected stack contains, and exports what other programs need.

    Raises:
        pulumi.RunError: the stack is invalid; the message has every problem with its place and fix.
    """
    configured = configured_stack(project)
    planned = of_part(plan(configured.stack), configured.part)

    async def program() -> dict[str, Any]:
        if configured.secrets:
            pulumi.runtime.register_stack_transformation(filling(configured.secrets))
        mark_objects(configured.part)
        with _quiet():
            return await _deploy(planned)

    pulumi.run(program)


async def _deploy(planned: Plan) -> dict[str, Any]:
    """Registers what one Pulumi stack has of an environment; returns its outputs."""
    if planned.part == CLUSTER:
        return {"connection": _cluster(planned).api.output()}
    if planned.part == OPERATORS:
        _operators(planned, _on_cluster(planned))
        return {}
    inside = _on_cluster(planned) if planned.part else _foundation(planned)
    await GradualTenancy("tenancy", planned, inside).register_teams()
    return outputs(planned)


def _on_cluster(planned: Plan) -> ResourceOptions:
    """Options of what is deployed to the cluster that exists, or that another Pulumi stack of the environment has."""
    if planned.part is None or CLUSTER not in planned.parts:
        cluster = _cluster(planned)
        return _own(planned, cluster.api, cluster.kubernetes)
    environment = pulumi.get_stack().removesuffix(f".{planned.part}")
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{environment}.{CLUSTER}"
    # The name of its provider in the other stack: an object keeps it when it moves between the stacks.
    connection = pulumi.StackReference(name).require_output("connection")
    api = Api.of("cluster-kubernetes", connection, planned.cluster.late_users)
    return _own(planned, api, api.provider())


def _cluster(planned: Plan, name: str = "", parent: pulumi.Resource | None = None) -> Cluster:
    return open_cluster(f"{_prefix(name)}cluster", planned.cluster, ResourceOptions(parent=parent))


def _own(
    planned: Plan, api: Api, provider: kubernetes.Provider, parent: pulumi.Resource | None = None
) -> ResourceOptions:
    """Options of what is deployed to a cluster; objects that the stack adopts are taken over if they exist."""
    changed = adopting(planned.cluster.section.adopt, api)
    if api.users:
        changed.append(filling(api.users))
    return ResourceOptions(parent=parent, providers=[provider], transformations=changed)


@contextmanager
def _quiet() -> Generator[None]:
    """Has the SDK register resources without debug messages and without stacks of calls.

    The program would wait for the engine's answer to two messages for each resource, which say what the SDK does, not
    the program. Errors, warnings and messages of the provider are sent. With the stack of calls by which the program
    made each resource, the engine's state would be twice as large, with paths of this machine, and a file backend
    writes it at each step. An error of the program itself has its whole traceback, since the limit is lifted before it
    is printed: https://docs.python.org/3/library/sys.html#sys.tracebacklimit.
    """
    if get_engine() is not None:
        pulumi.log.debug = lambda *_, **__: None  # pyright: ignore[reportUnknownLambdaType]
    before: int | None = getattr(sys, "tracebacklimit", None)
    sys.tracebacklimit = 1
    try:
        yield
    finally:
        if before is None:
            del sys.tracebacklimit
        else:
            sys.tracebacklimit = before


def build(planned: Plan, *, name: str = "", parent: pulumi.Resource | None = None) -> None:
    """Registers everything that a plan contains.

    Args:
        planned: of one environment.
        name: start of the names of all resources, for programs with several platforms; default: none.
        parent: of the cluster, the operators, the dashboards and the tenancy; default: the stack.

    Raises:
        pulumi.RunError: the cloud's package is not installed, or the plan is divided.
    """
    if planned.parts:
        raise pulumi.RunError("split: a component is in one Pulumi stack, so it cannot be divided; remove it")
    inside = _foundation(planned, name, parent)
    Tenancy(f"{_prefix(name)}tenancy", planned, inside, prefix=f"{name}." if name else "")


def _foundation(planned: Plan, name: str = "", parent: pulumi.Resource | None = None) -> ResourceOptions:
    """Registers the cluster, operators and dashboards; returns the options of the tenancy."""
    cluster = _cluster(planned, name, parent)
    return _operators(planned, _own(planned, cluster.api, cluster.kubernetes, parent), cluster.system, name)


def _operators(
    planned: Plan, own: ResourceOptions, system: Sequence[pulumi.Resource] = (), name: str = ""
) -> ResourceOptions:
    """Registers operators and dashboards; returns the options of what needs them."""
    prefix = _prefix(name)
    inside = ResourceOptions.merge(own, ResourceOptions(depends_on=[*system]))
    if planned.operators:
        operators = Operators(f"{prefix}operators", planned.operators, inside)
        inside = ResourceOptions.merge(own, ResourceOptions(depends_on=[operators]))
    if planned.infiniband:
        Infiniband(f"{prefix}infiniband", planned.infiniband, inside)
    if planned.observability:
        of_others = planned.monitoring not in {release.namespace for release in planned.operators}
        Observability(f"{prefix}observability", planned.observability, planned.monitoring, inside, of_others=of_others)
    return inside


def _prefix(name: str) -> str:
    return f"{name}-" if name else ""  # a hyphen, because clouds do not accept dots in names


def outputs(planned: Plan) -> dict[str, Any]:
    """What other programs need of a platform or a tenancy, by the names of its outputs."""
    return {
        "environment": planned.environment,
        "namespaces": [team.namespace.name for team in planned.teams],
        "gpuOperatorValues": planned.cluster.gpu_operator,
        "queues": {team.namespace.name: team.namespace.queue for team in planned.teams},
    }


class Platform(Component):
    """Everything that a stack can declare, as one component: for programs that deploy other things too.

    The program of this project has no such component: its resources are children of the stack. Names of resources
    start with the component's name, so that a program can have several platforms.

    Example:
        >>> Platform("ml", plan(stack))
    """

    def __init__(self, name: str, planned: Plan, opts: ResourceOptions | None = None) -> None:
        super().__init__(PLATFORM, name, opts)
        build(planned, name=name, parent=self)
        self.register_outputs(outputs(planned))


def adopting(names: Sequence[str], api: Api) -> list[pulumi.ResourceTransformation]:
    """Transformations of a component with which the named objects below it are taken over if they exist.

    All other objects keep their provider, which refuses objects that exist already.
    """
    if not names:
        return []
    wanted = frozenset(names)
    provider = api.adopting()

    def adopt(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        metadata = metadata_of(args)
        if metadata is None:
            return None
        api_version, _, kind = args.type_.removeprefix("kubernetes:").removeprefix("core/").rpartition(":")
        place = metadata.get("namespace") or "", metadata.get("name") or ""
        if adoptable(api_version, kind, *place) not in wanted:
            return None
        options = ResourceOptions.merge(args.opts, ResourceOptions(provider=provider))
        return pulumi.ResourceTransformationResult(args.props, options)

    return [adopt]
