"""The platform of a stack: cluster, operators, dashboards and tenancy, in the order in which they need each other."""

import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi.runtime.settings import get_engine

from gpu_tenancy.model.names import adoptable
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.environment import CLUSTER, OPERATORS

from .clouds import Cluster, open_cluster
from .clouds.api import Api
from .config import configured_stack, of_part
from .marking import mark_objects
from .observability import Observability
from .operators import Infiniband, Operators
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
        _silence()
        if configured.secrets:
            pulumi.runtime.register_stack_transformation(filling(configured.secrets))
        mark_objects(configured.part)
        with _without_traces():
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


def _on_cluster(planned: Plan) -> pulumi.ResourceOptions:
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
    return open_cluster(f"{_prefix(name)}cluster", planned.cluster, pulumi.ResourceOptions(parent=parent))


def _own(
    planned: Plan, api: Api, provider: kubernetes.Provider, parent: pulumi.Resource | None = None
) -> pulumi.ResourceOptions:
    """Options of what is deployed to a cluster; objects that the stack adopts are taken over if they exist."""
    changed = adopting(planned.cluster.section.adopt, api)
    if api.users:
        changed.append(filling(api.users))
    return pulumi.ResourceOptions(parent=parent, providers=[provider], transformations=changed)


def _silence() -> None:
    """Has the SDK send no debug messages to the engine: two for each resource, and the program waits for each answer.

    They say what the SDK does, not the program. Errors, warnings and messages of the provider are sent.
    """
    if get_engine() is not None:
        pulumi.log.debug = _unsent


def _unsent(msg: str, *_: object, **__: object) -> None:
    """A message that nobody reads."""


@contextmanager
def _without_traces() -> Generator[None]:
    """Has the SDK register resources without the stack of calls by which the program made each.

    The engine's state would be twice as large, with paths of this machine, and a file backend writes it at each step.
    An error of the program itself has its whole traceback, since the limit is lifted before it is printed:
    https://docs.python.org/3/library/sys.html#sys.tracebacklimit.
    """
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


def _foundation(planned: Plan, name: str = "", parent: pulumi.Resource | None = None) -> pulumi.ResourceOptions:
    """Registers the cluster, operators and dashboards; returns the options of the tenancy."""
    cluster = _cluster(planned, name, parent)
    return _operators(planned, _own(planned, cluster.api, cluster.kubernetes, parent), cluster.system, name)


def _operators(
    planned: Plan, own: pulumi.ResourceOptions, system: Sequence[pulumi.Resource] = (), name: str = ""
) -> pulumi.ResourceOptions:
    """Registers operators and dashboards; returns the options of what needs them."""
    prefix = _prefix(name)
    inside = pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(depends_on=[*system]))
    if planned.operators:
        operators = Operators(f"{prefix}operators", planned.operators, inside)
        inside = pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(depends_on=[operators]))
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


class Platform(pulumi.ComponentResource):
    """Everything that a stack can declare, as one component: for programs that deploy other things too.

    The program of this project has no such component: its resources are children of the stack. Names of resources
    start with the component's name, so that a program can have several platforms.

    Example:
        >>> Platform("ml", plan(stack))
    """

    def __init__(self, name: str, planned: Plan, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(PLATFORM, name, {}, opts)
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
        if _name(args.type_, args.props) not in wanted:
            return None
        options = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(provider=provider))
        return pulumi.ResourceTransformationResult(args.props, options)

    return [adopt]


def _name(type_: str, props: Mapping[str, Any]) -> str:
    """The name of a resource in `cluster.adopt`; empty for what is not an object of Kubernetes."""
    package, _, rest = type_.partition(":")
    api_version, _, kind = rest.rpartition(":")
    metadata = props.get("metadata") if package == "kubernetes" else None
    if not isinstance(metadata, Mapping):
        return ""
    known = cast("Mapping[str, Any]", metadata)
    return adoptable(api_version.removeprefix("core/"), kind, known.get("namespace") or "", known.get("name") or "")
