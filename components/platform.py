"""The platform of a stack: cluster, operators, dashboards and tenancy; and the stack as the Pulumi engine has it."""

import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import ResourceOptions
from pulumi.runtime.config import CONFIG, get_config, get_config_env, is_config_secret
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_engine, get_monitor

from gpu_tenancy.base.problems import Problem, StackError
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import UNREAD, adoptable, deployed_by, with_marks
from gpu_tenancy.model.plan import Plan, plan
from gpu_tenancy.model.plan.environment import CLUSTER, KEY, OPERATORS
from gpu_tenancy.model.plan.secrets import config_names
from gpu_tenancy.model.source import Source, read_config, read_file, with_files
from gpu_tenancy.model.spec import NAMESPACE, Stack
from gpu_tenancy.model.spec.cluster import ExistingCluster
from gpu_tenancy.model.spec.secrets import CONFIG as SECRETS
from gpu_tenancy.model.spec.secrets import set_command

from .clouds import Api, Cluster, open_cluster
from .objects import FORMER, Component, Options
from .operators import Infiniband, Observability, Operators
from .provider.inputs import Inputs, Late, filling, without_secrets
from .tenancy import GradualTenancy, Tenancy

PLATFORM: Final = "gpu-tenancy:index:Platform"  # type of the platform in programs of other languages


def deploy(project: Path) -> None:
    """Declares all resources and outputs of the selected stack; raises RunError with every problem of the stack."""
    configured = configured_stack(project)
    planned = of_part(plan(configured.stack), configured.part)

    async def program() -> dict[str, Any]:
        """Registers the resources of one Pulumi stack of an environment; returns its outputs."""
        if configured.secrets:
            pulumi.runtime.register_stack_transformation(filling(configured.secrets))
        mark_objects(configured.part)
        with _quiet():
            if planned.part == CLUSTER:
                api = _cluster(planned).api
                return {"connection": api.output(), **access(planned, api)}
            if planned.part == OPERATORS:
                _operators(planned, _on_cluster(planned))
                return {}
            reached: dict[str, Any] = {}
            if planned.part:
                inside = _on_cluster(planned)
            else:
                cluster = _cluster(planned)
                inside, reached = _foundation(planned, cluster), access(planned, cluster.api)
            await GradualTenancy("tenancy", planned, inside).register_teams()
            return {**outputs(planned), **reached}

    pulumi.run(program)


def _on_cluster(planned: Plan) -> ResourceOptions:
    """Options of resources on a cluster that exists, or that another Pulumi stack of the environment has."""
    if planned.part is None or CLUSTER not in planned.parts:
        cluster = _cluster(planned)
        return _own(planned, cluster.api, cluster.kubernetes)
    environment = pulumi.get_stack().removesuffix(f".{planned.part}")
    name = f"{pulumi.get_organization()}/{pulumi.get_project()}/{environment}.{CLUSTER}"
    # The name of its provider in the other stack: an object keeps it when it moves between the stacks.
    connection = pulumi.StackReference(name).require_output("connection")
    api = Api.of("cluster-kubernetes", connection, planned.cluster.late_users)
    return _own(planned, api, api.provider())


def _cluster(planned: Plan, prefix: str = "", parent: pulumi.Resource | None = None) -> Cluster:
    return open_cluster(f"{prefix}cluster", planned.cluster, ResourceOptions(parent=parent))


def _own(
    planned: Plan, api: Api, provider: kubernetes.Provider, parent: pulumi.Resource | None = None
) -> ResourceOptions:
    """Options of resources on a cluster; objects that the stack adopts are taken over if they exist."""
    changed = adopting(planned.cluster.section.adopt, api)
    if api.users:
        changed.append(filling(api.users))
    return ResourceOptions(parent=parent, providers=[provider], transformations=changed)


@contextmanager
def _quiet() -> Generator[None]:
    """Has the SDK register resources without debug messages and without stacks of calls."""
    # The program would wait for the engine's answer to two debug messages for each resource. Stacks of calls would
    # double the engine's state, which a file backend writes at each step. The limit is lifted before an error is
    # printed: https://docs.python.org/3/library/sys.html#sys.tracebacklimit.
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
    """Registers a whole plan; raises RunError if the plan is divided or the cloud's package is not installed.

    For several platforms, `name` is the start of the names of all resources, `parent` their component.
    """
    if planned.parts:
        raise pulumi.RunError("split: a component is in one Pulumi stack, so it cannot be divided; remove it")
    prefix = f"{name}-" if name else ""  # a hyphen, because clouds do not accept dots in names
    inside = _foundation(planned, _cluster(planned, prefix, parent), prefix, parent)
    Tenancy(f"{prefix}tenancy", planned, inside, prefix=f"{name}." if name else "")


def _foundation(
    planned: Plan, cluster: Cluster, prefix: str = "", parent: pulumi.Resource | None = None
) -> ResourceOptions:
    return _operators(planned, _own(planned, cluster.api, cluster.kubernetes, parent), cluster.system, prefix)


def _operators(
    planned: Plan, own: ResourceOptions, system: Sequence[pulumi.Resource] = (), prefix: str = ""
) -> ResourceOptions:
    """Registers operators and dashboards; returns the options of their dependents."""
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


def outputs(planned: Plan) -> dict[str, Any]:
    """Outputs of a platform or a tenancy for other programs, by name; values of a chart only for its installer."""
    values = planned.cluster.gpu_operator
    of_others = values and "gpu-operator" not in {one.name for one in planned.operators}
    return {
        "environment": planned.environment,
        "namespaces": [team.namespace.name for team in planned.teams],
        "queues": {team.namespace.name: team.namespace.queue for team in planned.teams},
        **({"gpuOperatorValues": values} if of_others else {}),
    }


def access(planned: Plan, api: Api) -> dict[str, Any]:
    """Outputs by which others reach the cluster of a cloud; an existing cluster's kubeconfig is the user's own."""
    section = planned.cluster.section
    if isinstance(section, ExistingCluster):
        return {}
    return {"cluster": section.name, "kubeconfig": pulumi.Output.secret(api.kubeconfig)}


class Platform(Component):
    """Everything that a stack can declare, as one component: for programs that deploy other things too.

    Names of resources start with the component's name, so that a program can have several platforms.

    Example:
        >>> Platform("ml", plan(stack))
    """

    def __init__(self, name: str, planned: Plan, opts: Options = None) -> None:
        super().__init__(PLATFORM, name, opts)
        build(planned, name=name, parent=self)
        self.register_outputs(outputs(planned))


def adopting(names: Sequence[str], api: Api) -> list[pulumi.ResourceTransformation]:
    """Transformations that take over a component's named objects if they exist; other existing ones are refused."""
    if not names:
        return []
    wanted = frozenset(names)
    provider = api.provider(adopts=True)

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


@dataclass(frozen=True)
class Configured:
    """The config of this run: the environment's stack with placeholders for secrets, and values by placeholder."""

    stack: Stack
    secrets: Mapping[str, Late]
    part: str | None  # of the environment that this Pulumi stack has; None for all of it


def configured_stack(project: Path) -> Configured:
    """The stack of this run: values from the engine, places of errors from the stack's file if it exists.

    A secret for pods or a chart, such as a value of `env`, is a placeholder in the stack, so that the plan does not
    have it in clear text. Any other secret is refused, because labels and names would show it. All problems are one
    `pulumi.RunError`, which Pulumi prints without a trace of calls.
    """
    values = {key: str(value) for key, value in (CONFIG.get() or get_config_env()).items()}
    part = values.pop(KEY, None)
    environment = pulumi.get_stack().removesuffix(f".{part}")
    file = f"stacks/Pulumi.{environment}.yaml"
    try:
        written = read_file(project / file, file)
    except StackError:
        written = None  # The engine may keep a stack's config elsewhere.
    try:
        source = read_config(values, written)
        if unplaced := list(_unplaced(source, file)):
            raise StackError(unplaced)  # noqa: TRY301 - all that is wrong in a stack ends below
        source = with_files(source, project / "stacks")
        inputs = without_secrets(source)
        stack = _loaded(source, inputs)
        if missing := list(_missing(source, stack)):
            raise StackError(missing)  # noqa: TRY301 - as above
        return Configured(stack, inputs.late, part)
    except StackError as error:
        raise pulumi.RunError(str(error)) from error


def _unplaced(source: Source, file: str) -> Iterator[Problem]:
    """One problem for each section that has a secret, whose place only the engine knows."""
    known = {path[0] for path in source.secrets}
    for key in sorted(source.sections):
        if key not in known and is_config_secret(f"{NAMESPACE}:{key}"):
            yield Problem(
                (key,),
                f"has a secret that is not in {file}",
                f"set it with `pulumi config set --secret --path` in {file}",
            )


def _missing(source: Source, stack: Stack) -> Iterator[Problem]:
    """One problem for each value of a Secret that the config does not have, or has in clear text."""
    for name, path in config_names(stack).items():
        key, file, line = f"{SECRETS}:{name}", source.file, source.line(path)
        value, fix = get_config(key), f"run `{set_command(name)}`"
        if not value:
            yield Problem(path, "is not in the Pulumi config", fix, name, file=file, line=line)
        elif value != UNREAD and not is_config_secret(key):
            yield Problem(path, "is in clear text in the Pulumi config", fix, name, file=file, line=line)


def _loaded(source: Source, inputs: Inputs) -> Stack:
    refused = [replace(problem, file=source.file, line=source.line(problem.path)) for problem in inputs.refusals()]
    read = replace(source, sections=inputs.sections, unread=(*source.unread, *inputs.secrets))
    try:
        stack = load(read)
    except StackError as error:
        raise StackError([*refused, *error.problems]) from error
    if refused:
        raise StackError(refused)
    return stack


def of_part(planned: Plan, name: str | None) -> Plan:
    """The plan of this run: of one part, or of an undivided environment; raises RunError if they do not match."""
    if name is None and not planned.parts:
        return planned
    stack = pulumi.get_stack()
    if name in planned.parts:
        return replace(planned, part=name)
    if name is None:
        stacks = ", ".join(f"{stack}.{part}" for part in planned.parts)
        raise pulumi.RunError(
            f"split: {stack} is divided into the stacks {stacks}; run `tenancy up {stack}`, or remove split"
        )
    raise pulumi.RunError(
        f"{KEY}: {name} is not a part of {stack.removesuffix(f'.{name}')}; known: {', '.join(planned.parts) or 'none'};"
        " to deploy all parts, run `tenancy up`"
    )


def mark_objects(part: str | None) -> None:
    """Adds `with_marks` and aliases to each object of an environment's `part`; not under mocks, which deploy none."""
    if isinstance(get_monitor(), MockMonitor):
        return
    value = deployed_by(pulumi.get_project(), pulumi.get_stack().removesuffix(f".{part}"))

    def mark(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        metadata = metadata_of(args)
        if metadata is None:
            return None
        version, _, kind = args.type_.removeprefix("kubernetes:").rpartition(":")
        aliases = [pulumi.Alias(type_=f"kubernetes:{former}:{kind}") for former in FORMER.get(version, ())]
        options = ResourceOptions.merge(args.opts, ResourceOptions(aliases=aliases)) if aliases else args.opts
        props: dict[str, Any] = {**args.props, "metadata": with_marks(kind, metadata, value)}
        return pulumi.ResourceTransformationResult(props, options)

    pulumi.runtime.register_stack_transformation(mark)


def metadata_of(args: pulumi.ResourceTransformationArgs) -> Mapping[str, Any] | None:
    """The metadata of an object of Kubernetes; None for other resources."""
    metadata = args.props.get("metadata") if args.type_.startswith("kubernetes:") else None
    return cast("Mapping[str, Any]", metadata) if isinstance(metadata, Mapping) else None
