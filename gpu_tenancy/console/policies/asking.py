"""A stack's resources as Pulumi's engine sends them to policy packs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final

from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import analyzer_pb2 as wire

from gpu_tenancy.console.offline.recording import STACK_TYPE, Registration
from gpu_tenancy.console.offline.render import Rendered
from gpu_tenancy.console.offline.wire import SECRET, SIGNATURE, Json, Path

_INTERNAL: Final = "__"
"""How keys begin that providers keep for themselves; the engine sends none of them to be judged."""


@dataclass(frozen=True, slots=True)
class Questions:
    """All that is asked of a pack about one stack.

    Attributes:
        each: one request for each resource, in an order in which the engine could have met them.
        stack: all resources at once.
    """

    each: tuple[wire.AnalyzeRequest, ...]
    stack: wire.AnalyzeStackRequest


def questions(rendered: Rendered) -> Questions:
    """What the engine would ask while it previews a stack that does not exist yet.

    Where a resource is only read (`Namespace.get(…)`) the engine asks nothing about it alone, and its state, which it
    sends with the stack's, is not known here: it is left out. Outputs are the inputs here; what a provider would add
    to them is not known before a cluster answers.
    """
    own = [each for each in rendered.registrations if not each.external_id]
    providers = {each.urn: each for each in own if each.type.startswith("pulumi:providers:")}
    root = Registration(
        f"urn:pulumi:{rendered.stack}::{rendered.project}::{STACK_TYPE}::{rendered.project}-{rendered.stack}",
        STACK_TYPE,
        f"{rendered.project}-{rendered.stack}",
        custom=False,
        inputs={},
    )
    each: list[wire.AnalyzeRequest] = []
    stack = wire.AnalyzeStackRequest()
    for registration in (root, *_in_order(own)):
        parent = "" if registration is root else registration.parent or root.urn
        asked = wire.AnalyzeRequest(
            type=registration.type,
            urn=registration.urn,
            name=registration.name,
            properties=struct(registration),
            options=_options(registration, parent),
            provider=_provider(providers.get(registration.provider.rpartition("::")[0])),
        )
        each.append(asked)
        stack.resources.add(
            type=asked.type,
            urn=asked.urn,
            name=asked.name,
            properties=asked.properties,
            options=asked.options,
            provider=asked.provider if asked.HasField("provider") else None,
            parent=parent,
            dependencies=registration.dependencies,
            propertyDependencies={
                key: wire.AnalyzerPropertyDependencies(urns=urns)
                for key, urns in registration.property_dependencies.items()
            },
        )
    return Questions(tuple(each), stack)


def struct(registration: Registration) -> Struct:
    """A resource's inputs over the wire, its secrets marked; an unknown value is the mark for one already."""
    found = Struct()
    found.update({key: each for key, each in _marked(registration).items() if not key.startswith(_INTERNAL)})
    return found


def _marked(registration: Registration) -> dict[str, Json]:
    marked: Json = dict(registration.inputs)
    # The innermost first: a secret may hold another one.
    for path in sorted(registration.secret_paths, key=len, reverse=True):
        marked = _wrapped(marked, path)
    return marked if isinstance(marked, dict) else {}


def _wrapped(value: Json, path: Path) -> Json:
    """A copy in which what is at a path carries the mark of a secret."""
    if not path:
        return {SIGNATURE: SECRET, "value": value}
    key, rest = path[0], path[1:]
    if isinstance(value, dict) and isinstance(key, str):
        return {**value, key: _wrapped(value[key], rest)}
    if isinstance(value, list) and isinstance(key, int):
        return [*value[:key], _wrapped(value[key], rest), *value[key + 1 :]]
    return value


def _in_order(registrations: Sequence[Registration]) -> Iterator[Registration]:
    """What is needed before what needs it; in the order of URNs where the program says nothing."""
    known = {each.urn: each for each in registrations}
    needs = {
        urn: sorted({each.parent, *each.dependencies, each.provider.rpartition("::")[0]} & known.keys() - {urn})
        for urn, each in sorted(known.items())
    }
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


def _provider(registration: Registration | None) -> wire.AnalyzerProviderResource | None:
    if registration is None:
        return None
    return wire.AnalyzerProviderResource(
        type=registration.type, urn=registration.urn, name=registration.name, properties=struct(registration)
    )
