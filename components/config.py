"""The stack as the Pulumi engine hands it to the program, and its mark on objects in a cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pulumi
from pulumi.runtime.config import CONFIG, get_config, get_config_env, is_config_secret
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import get_monitor

from gpu_tenancy.base.problems import Problem, StackError
from gpu_tenancy.model.load import load
from gpu_tenancy.model.names import DEPLOYED_BY, UNREAD, deployed_by
from gpu_tenancy.model.plan import Plan
from gpu_tenancy.model.plan.parts import KEY
from gpu_tenancy.model.plan.secrets import config_names
from gpu_tenancy.model.source import Source, read_config, read_file, with_files
from gpu_tenancy.model.spec import NAMESPACE, Stack
from gpu_tenancy.model.spec.secrets import CONFIG as SECRETS
from gpu_tenancy.model.spec.secrets import set_command

from .provider.inputs import Inputs, Late, without_secrets


@dataclass(frozen=True)
class Configured:
    """The config of this run.

    Attributes:
        stack: the environment, with placeholders for secrets.
        secrets: values by placeholder.
        part: name of the part of the environment that this Pulumi stack has; None for all of it.
    """

    stack: Stack
    secrets: Mapping[str, Late]
    part: str | None


def configured_stack(project: Path) -> Configured:
    """The stack of this run: values from the engine, places of errors from the stack's file where it is at hand.

    A secret that reaches pods or a chart unchanged, such as a value of `env`, is a placeholder in the stack, so that
    the plan does not have it in clear text. Any other secret is refused, because labels and names would show it.

    Raises:
        pulumi.RunError: with everything that is wrong in the stack; Pulumi prints it without a trace of calls.
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
    """One problem for each section that has a secret of which only the engine knows the place."""
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
    """The plan of this run: of one part, or of an environment that is one Pulumi stack.

    Raises:
        pulumi.RunError: the environment is divided and this is none of its parts, or it is not divided.
    """
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
    """Has each object of Kubernetes that the program registers carry the mark of its environment.

    Not under mocks, where nothing is deployed: manifests of a preview can go to another cluster by other ways.

    Args:
        part: of the environment that this Pulumi stack has; an object keeps its mark when it moves between the parts.
    """
    if isinstance(get_monitor(), MockMonitor):
        return
    value = deployed_by(pulumi.get_project(), pulumi.get_stack().removesuffix(f".{part}"))

    def mark(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        metadata = metadata_of(args)
        if metadata is None:
            return None
        annotations: dict[str, Any] = {**(metadata.get("annotations") or {}), DEPLOYED_BY: value}
        props: dict[str, Any] = {**args.props, "metadata": {**metadata, "annotations": annotations}}
        return pulumi.ResourceTransformationResult(props, args.opts)

    pulumi.runtime.register_stack_transformation(mark)


def metadata_of(args: pulumi.ResourceTransformationArgs) -> Mapping[str, Any] | None:
    """The metadata of an object of Kubernetes; None for other resources."""
    metadata = args.props.get("metadata") if args.type_.startswith("kubernetes:") else None
    return cast("Mapping[str, Any]", metadata) if isinstance(metadata, Mapping) else None
