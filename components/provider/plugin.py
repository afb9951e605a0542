"""The provider that constructs the components for programs in other languages.

The engine starts it and calls it over gRPC:
https://github.com/pulumi/pulumi/blob/master/proto/pulumi/provider.proto

Pulumi's own host of components, `pulumi.provider.experimental` (tried in 3.272.0), cannot serve it: its Analyzer reads
neither pydantic models nor unions nor literals; its ComponentProvider drops unknown keys without an error, stops at the
first missing key, and takes a secret or unknown section for an empty one.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, Final, cast

import pulumi
from pulumi.errors import InputPropertiesError, InputPropertyErrorDetails
from pulumi.output import UNKNOWN
from pulumi.provider import ConstructResult, Provider, main

from gpu_tenancy.base.problems import Problem, StackError, dotted, unknown
from gpu_tenancy.model.load import load
from gpu_tenancy.model.plan import Plan, plan

from ..platform import PLATFORM, Platform, outputs
from ..tenancy import Tenancy
from .inputs import Inputs, filling, property_path, read_inputs
from .package import OUTPUTS, TENANCY, TENANCY_CLUSTER, TENANCY_SECTIONS, package_schema

_COMPONENTS: Final = (PLATFORM, TENANCY)


def serve() -> None:
    """Runs the plugin until the engine ends it: prints the port of its gRPC server, which listens on loopback only.

    The engine passes its own address as the first argument.
    """
    main(TenancyProvider(), sys.argv[1:])


class TenancyProvider(Provider):
    """Constructs `Platform` and `Tenancy` from the sections of a stack."""

    def __init__(self) -> None:
        super().__init__(
            version("gpu-tenancy"), f"{json.dumps(package_schema(), indent=2, sort_keys=True, ensure_ascii=False)}\n"
        )

    def construct(
        self, name: str, resource_type: str, inputs: pulumi.Inputs, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Registers a component with its children, from the sections of a stack as its inputs.

        Raises:
            InputPropertiesError: the type is unknown. Awaiting the URN raises it too, for invalid inputs.
        """
        if resource_type not in _COMPONENTS:
            message = f"unknown component '{resource_type}'; use one of: {', '.join(_COMPONENTS)}"
            raise InputPropertiesError(message, [])  # with None, the SDK of 3.272 fails itself
        # This method is not a coroutine, but inputs must be awaited. The SDK reads the state after it has the URN.
        state: dict[str, pulumi.Input[Any]] = {}
        urn = pulumi.Output.from_input(_constructed(name, resource_type, inputs, options, state))
        return ConstructResult(cast("pulumi.Output[str]", urn), state)


async def _constructed(
    name: str,
    kind: str,
    inputs: pulumi.Inputs,
    options: pulumi.ResourceOptions | None,
    state: dict[str, pulumi.Input[Any]],
) -> pulumi.Output[str]:
    read = await read_inputs(inputs)
    planned = _planned(name, kind, read)
    own = pulumi.ResourceOptions(
        depends_on=list(read.needs), transformations=[filling(read.late)] if read.late else None
    )
    opts = pulumi.ResourceOptions.merge(options, own)
    if planned is None:
        component = pulumi.ComponentResource(kind, name, {}, opts)
        names = ", ".join(property_path(path) for path in read.unknown)
        pulumi.log.warn(
            f"not previewed: a plan needs plain values, and a preview does not know {names}. The component's objects"
            " are missing in this preview, so existing ones are listed as deleted; the deployment plans with the real"
            " values. Pass plain values to preview them",
            component,
        )
        component.register_outputs(dict.fromkeys(OUTPUTS, UNKNOWN))
        state.update(dict.fromkeys(OUTPUTS, UNKNOWN))
        return component.urn
    try:
        component = (
            Platform(name, planned, opts)
            if kind == PLATFORM
            else Tenancy(name, planned, opts, kind=TENANCY, prefix=f"{name}.")
        )
    except pulumi.RunError as error:
        raise InputPropertiesError(str(error), []) from error
    state.update(outputs(planned))
    return component.urn


def _planned(name: str, kind: str, read: Inputs) -> Plan | None:
    """The plan; None in a preview without all values that it needs. Raises InputPropertiesError with all problems."""
    problems = [*read.refusals(), *(_tenancy_problems(read.sections) if kind == TENANCY else ())]
    if kind == TENANCY and isinstance(read.sections.get("cluster"), dict):
        read.sections["cluster"] = {"cloud": "existing", **read.sections["cluster"]}
    try:
        stack = load(read.source)
    except StackError as error:
        stack = None
        problems += error.problems
    if not pulumi.runtime.is_dry_run():
        problems += [Problem(path, "is unknown", "pass a value that is known in a deployment") for path in read.unknown]
    if problems:
        raise _refused(name, kind, problems, read)
    return None if stack is None or read.unknown else plan(stack)


def _tenancy_problems(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """What a stack can declare and a tenancy on an existing cluster cannot."""
    for key in sorted(set(sections) - set(TENANCY_SECTIONS)):
        yield Problem((key,), *unknown("key", key, TENANCY_SECTIONS))
    for key in sorted(set(_mapping(sections.get("cluster"))) - set(TENANCY_CLUSTER)):
        yield Problem(("cluster", key), *unknown("key", key, TENANCY_CLUSTER))
    for operator, entry in sorted(_mapping(sections.get("operators")).items()):
        if "here" in (entry, _mapping(entry).get("install")):
            path = ("operators", operator) if entry == "here" else ("operators", operator, "install")
            yield Problem(
                path, "installs an operator, which Tenancy does not", "set installed, or use Platform", "here"
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _refused(name: str, kind: str, problems: Iterable[Problem], read: Inputs) -> InputPropertiesError:
    """The error that the engine shows: one line for each problem."""
    # The engine adds the value of the property, in clear text, so a problem at a secret has no property:
    # `errorToMessage` in https://github.com/pulumi/pulumi/blob/master/pkg/resource/deploy/source_eval.go.
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: dotted(problem.path))
    shown = [problem for problem in ordered if not read.is_secret(problem.path)]
    lines = [f"\n\t\t- {problem}" for problem in ordered if problem not in shown]
    count = f"{len(ordered)} problem{'s' if len(ordered) > 1 else ''}"
    message = f"{kind.rpartition(':')[2]} {name} has {count} in its inputs:{''.join(lines)}"
    details: list[InputPropertyErrorDetails] = [
        {"property_path": property_path(problem.path), "reason": problem.reason} for problem in shown
    ]
    return InputPropertiesError(message, details)
