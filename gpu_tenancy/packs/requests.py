"""The requests that Pulumi's engine sends to policy packs for a stack's resources."""

from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.base.json import Json, Path
from gpu_tenancy.engine.recording import SECRET, SIGNATURE, STACK_TYPE, Registration
from gpu_tenancy.engine.render import Rendered

_INTERNAL: Final = "__"  # prefix of provider-internal keys; the engine does not send them to policy packs


def resource_requests(stack: wire.AnalyzeStackRequest) -> Iterator[wire.AnalyzeRequest]:
    """One request for each resource of a stack's request, made when it is read, because all take as much memory."""
    for resource in stack.resources:
        yield wire.AnalyzeRequest(
            type=resource.type,
            urn=resource.urn,
            name=resource.name,
            properties=resource.properties,
            options=resource.options,
            provider=resource.provider if resource.HasField("provider") else None,
        )


def stack_request(rendered: Rendered) -> wire.AnalyzeStackRequest:
    """The request that the engine sends in the preview of a new stack: all resources, in a possible order.

    A resource that is only read (`Namespace.get(…)`) is left out: the engine sends no request for it. Outputs equal the
    inputs, because a provider's additions are known only after deployment.
    """
    own = [registration for registration in rendered.registrations if not registration.external_id]
    providers = {provider.urn: provider for provider in own if provider.type.startswith("pulumi:providers:")}
    root = Registration(
        f"urn:pulumi:{rendered.stack}::{rendered.project}::{STACK_TYPE}::{rendered.project}-{rendered.stack}",
        STACK_TYPE,
        f"{rendered.project}-{rendered.stack}",
        custom=False,
        inputs={},
    )
    hosts = {
        urn: wire.AnalyzerProviderResource(type=provider.type, urn=urn, name=provider.name, properties=struct(provider))
        for urn, provider in providers.items()
    }
    stack = wire.AnalyzeStackRequest()
    for registration in (root, *_in_order(own)):
        parent = "" if registration is root else registration.parent or root.urn
        resource = stack.resources.add(
            type=registration.type,
            urn=registration.urn,
            name=registration.name,
            options=_options(registration, parent),
            provider=hosts.get(registration.provider.rpartition("::")[0]),
            parent=parent,
            dependencies=registration.dependencies,
            propertyDependencies={
                key: wire.AnalyzerPropertyDependencies(urns=urns)
                for key, urns in registration.property_dependencies.items()
            },
        )
        _fill(resource.properties, registration)
    return stack


def struct(registration: Registration) -> Struct:
    """A resource's inputs in the protocol's form, with secrets marked; unknown values are marked already."""
    properties = Struct()
    _fill(properties, registration)
    return properties


def _fill(properties: Struct, registration: Registration) -> None:
    marked: Json = dict(registration.inputs)
    # Innermost first: a secret may contain another one.
    for path in sorted(registration.secret_paths, key=len, reverse=True):
        marked = _wrapped(marked, path)
    properties.SetInParent()
    if isinstance(marked, dict):
        properties.update({key: value for key, value in marked.items() if not key.startswith(_INTERNAL)})


def _wrapped(value: Json, path: Path) -> Json:
    if not path:
        return {SIGNATURE: SECRET, "value": value}
    key, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(key, str):
        return {**value, key: _wrapped(value[key], rest)}
    if isinstance(value, list) and isinstance(key, int):
        return [*value[:key], _wrapped(value[key], rest), *value[key + 1 :]]
    return value


def _in_order(registrations: Sequence[Registration]) -> Iterator[Registration]:
    """Dependencies before their dependents; otherwise in the order of URNs."""
    known = {registration.urn: registration for registration in registrations}
    needs: dict[str, list[str]] = {}
    for urn, registration in sorted(known.items()):
        needed = {registration.parent, *registration.dependencies, registration.provider.rpartition("::")[0]}
        needs[urn] = sorted(needed & known.keys() - {urn})
    try:
        order = list(TopologicalSorter(needs).static_order())
    except CycleError:
        order = sorted(known)
    return (known[urn] for urn in order)


def _options(registration: Registration, parent: str) -> wire.AnalyzerResourceOptions:
    return wire.AnalyzerResourceOptions(
        protect=registration.protect,
        ignoreChanges=registration.ignore_changes,
        deleteBeforeReplace=registration.delete_before_replace,
        deleteBeforeReplaceDefined=registration.delete_before_replace,
        additionalSecretOutputs=registration.additional_secret_outputs,
        aliases=registration.aliases,
        customTimeouts=wire.AnalyzerResourceOptions.CustomTimeouts(),
        parent=parent,
    )
