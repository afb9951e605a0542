"""A resource monitor that records every registration as the program sent it, without an engine."""

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from sys import intern
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar, cast

from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value
from pulumi.runtime import Mocks
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.proto import alias_pb2, callback_pb2, provider_pb2, resource_pb2

from gpu_tenancy.base.json import Json, Path, replaced, text_at
from gpu_tenancy.engine.sharing import Sharing

# Published constants of Pulumi's protocol (sdk/go/common/resource/properties.go).
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a marker of the protocol, not a credential
_RESOURCE = "5cf8f73096256a8f31e491e813e4eb8e"

_SHORT: Final = 64  # characters of texts that many resources share, such as labels


@dataclass(frozen=True, slots=True)
class Decoded:
    """The properties of one resource as plain JSON, with sorted keys, so that equal properties have equal text."""

    properties: dict[str, Json] = field(repr=False)
    secret_paths: tuple[Path, ...] = ()  # of secrets, which are unwrapped
    unknown_paths: tuple[Path, ...] = ()  # of values that are `UNKNOWN`


class _Decoder:
    def __init__(self) -> None:
        self.secrets: list[Path] = []
        self.unknowns: list[Path] = []

    def fields(self, struct: Struct, at: Path) -> dict[str, Json]:
        fields = struct.fields
        # Each message has its own copy of a key.
        return {intern(key): self.value(fields[key], (*at, key)) for key in sorted(fields)}

    def value(self, value: Value, at: Path) -> Json:
        match value.WhichOneof("kind"):
            case "string_value":
                text = value.string_value
                if text == UNKNOWN:
                    self.unknowns.append(at)
                return intern(text) if len(text) <= _SHORT else text
            case "number_value":
                number = value.number_value
                return int(number) if number.is_integer() else number
            case "bool_value":
                return value.bool_value
            case "struct_value":
                return self._struct(value.struct_value, at)
            case "list_value":
                return [self.value(item, (*at, index)) for index, item in enumerate(value.list_value.values)]
            case _:
                return None

    def _struct(self, struct: Struct, at: Path) -> Json:
        fields = struct.fields
        signature = fields[SIGNATURE].string_value if SIGNATURE in fields else ""
        if signature == SECRET:
            self.secrets.append(at)
            return self.value(fields["value"], at)
        if signature == _RESOURCE:
            return fields["urn"].string_value
        return self.fields(struct, at)


def decode(struct: Struct) -> Decoded:
    """Decodes properties: references become URNs, whole floats `int` (an API server rejects `8.0` replicas)."""
    decoder = _Decoder()
    return Decoded(decoder.fields(struct, ()), tuple(decoder.secrets), tuple(decoder.unknowns))


T = TypeVar("T")
STACK_TYPE = "pulumi:pulumi:Stack"
NO_ANSWERS: Mapping[str, Mapping[str, Json]] = MappingProxyType({})
NOTHING_EXISTS: Mapping[str, Mapping[str, Json]] = MappingProxyType(  # empty answers of functions that list resources
    {
        # The list of Auto Scaling groups, which this name does not tell.
        "aws:autoscaling/getAmiIds:getAmiIds": MappingProxyType({"names": [], "arns": []}),
        "aws:cloudwatch/getLogGroups:getLogGroups": MappingProxyType({"logGroupNames": [], "arns": []}),
    }
)


class OfflineError(RuntimeError):
    """The program needs a feature or a value that only an engine, a cloud or a cluster has."""


@dataclass(frozen=True, slots=True)
class Registration:
    """One resource as the program declared it: plain JSON with names as on the wire (camelCase)."""

    urn: str
    type: str
    name: str
    custom: bool
    inputs: Mapping[str, Json] = field(repr=False)  # with secrets in clear text; `shown` is for output
    parent: str = ""  # empty for a child of the stack
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    provider: str = ""
    protect: bool = False
    ignore_changes: tuple[str, ...] = ()
    replace_on_changes: tuple[str, ...] = ()
    delete_before_replace: bool = False
    retain_on_delete: bool = False
    aliases: tuple[str, ...] = ()
    additional_secret_outputs: tuple[str, ...] = ()
    import_id: str = ""
    external_id: str = ""  # of a resource that is only read (`Namespace.get(…)`), neither created nor owned
    secret_paths: tuple[Path, ...] = ()
    unknown_paths: tuple[Path, ...] = ()

    @property
    def will_exist(self) -> bool:
        """Whether the stack creates the resource: not a provider and not only read."""
        return not self.external_id and not self.type.startswith("pulumi:providers:")

    @property
    def shown(self) -> Mapping[str, Json]:
        """The inputs for output, with `[secret]` and `[unknown]` in place of such values."""
        return shown(self.inputs, self.secret_paths, self.unknown_paths)


def shown(
    properties: Mapping[str, Json], secret_paths: tuple[Path, ...], unknown_paths: tuple[Path, ...]
) -> Mapping[str, Json]:
    """Returns properties for output, with `[secret]` and `[unknown]` in place of such values."""
    known = replaced(dict(properties), unknown_paths, "[unknown]")
    safe = replaced(known, secret_paths, "[secret]")
    return safe if isinstance(safe, dict) else {}


class RecordingMonitor(MockMonitor):
    """Pulumi's mock monitor, with complete registrations and without translation.

    Answers are a resource's inputs and an id (`namespace/name` for a Kubernetes object). Values that only a cloud knows
    stay unknown. URNs are the engine's; the mock monitor's differ in the types of parents. `answers` are results of
    provider functions by token, such as `aws:index/getRegion:getRegion`; functions that list a cloud's resources return
    nothing.
    """

    def __init__(self, project: str, stack: str, answers: Mapping[str, Mapping[str, Json]] = NO_ANSWERS) -> None:
        super().__init__(cast("Mocks", None))  # it never calls them
        self.sharing = Sharing(1)  # the processes that register parts; `render` sets others
        self.project = project
        self.stack = stack
        self.registrations: list[Registration] = []
        self.outputs: Decoded = Decoded({})
        self._prefix = f"urn:pulumi:{stack}::{project}::"
        self._stack_urn = f"{self._prefix}{STACK_TYPE}::{project}-{stack}"
        self._answers = {**NOTHING_EXISTS, **answers}
        self._states: dict[str, tuple[str, bytes]] = {}  # a Struct takes ten times the memory of its bytes

    def share(self, parts: Sequence[T]) -> Sequence[T]:
        """The independent parts that the program has to register in this process."""
        return self.sharing.share(parts)

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        """Returns the URN as the engine builds it."""
        if parent and parent != self._stack_urn:
            return f"{self._prefix}{parent.split('::')[2]}${type_}::{name}"
        return f"{self._prefix}{type_}::{name}"

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Records a registration, answers with its inputs; raises OfflineError for transforms, which need an engine."""
        urn = intern(self.make_urn(request.parent, request.type, request.name))
        if request.type == STACK_TYPE:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        if len(cast("Sized", request.transforms)):  # the stub has no element type
            _reject_transforms(urn)
        properties = self._record(
            urn,
            request,
            request.object,
            custom=request.custom,
            property_dependencies={
                key: _urns(of.urns) for key, of in sorted(request.propertyDependencies.items()) if of.urns
            },
            protect=request.protect,
            ignore_changes=tuple(request.ignoreChanges),
            replace_on_changes=tuple(request.replaceOnChanges),
            delete_before_replace=request.deleteBeforeReplace,
            retain_on_delete=request.retainOnDelete,
            aliases=tuple(
                alias.urn or json.dumps(MessageToDict(alias.spec), sort_keys=True)
                for alias in cast("Iterable[alias_pb2.Alias]", request.aliases)
            ),
            additional_secret_outputs=tuple(sorted(request.additionalSecretOutputs)),
            import_id=request.importId,
        )
        id_ = _id(request.name, properties) if request.custom else ""
        self._states[urn] = (id_, request.object.SerializeToString())
        return resource_pb2.RegisterResourceResponse(urn=urn, id=id_, object=request.object)

    def ReadResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.ReadResourceRequest
    ) -> resource_pb2.ReadResourceResponse:
        """Records a resource that the program reads; answers with its inputs and the `answers` for its type."""
        urn = intern(self.make_urn(request.parent, request.type, request.name))
        self._record(urn, request, request.properties, custom=True, external_id=request.id)
        self._states[urn] = (request.id, request.properties.SerializeToString())
        state = Struct()
        state.CopyFrom(request.properties)
        state.update(self._answers.get(request.type, {}))
        return resource_pb2.ReadResourceResponse(urn=urn, properties=state)

    def _record(
        self,
        urn: str,
        request: resource_pb2.RegisterResourceRequest | resource_pb2.ReadResourceRequest,
        properties: Struct,
        **options: Any,
    ) -> Mapping[str, Json]:
        decoded = decode(properties)
        self.registrations.append(
            Registration(
                urn=urn,
                type=intern(request.type),
                name=request.name,
                inputs=decoded.properties,
                parent="" if request.parent == self._stack_urn else intern(request.parent),
                dependencies=_urns(request.dependencies),
                provider=intern(request.provider),
                secret_paths=decoded.secret_paths,
                unknown_paths=decoded.unknown_paths,
                **options,
            )
        )
        return decoded.properties

    def RegisterResourceOutputs(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> Empty:
        """Records the stack's outputs; components' outputs are only for the engine's state."""
        if request.urn == self._stack_urn:
            self.outputs = decode(request.outputs)
        return Empty()

    def Invoke(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.ResourceInvokeRequest
    ) -> resource_pb2.ResourceInvokeResponse:
        """Answers a provider function from `answers`; raises OfflineError without an answer."""
        if request.tok == "pulumi:pulumi:getResource":  # the SDK resolves a resource reference
            urn = request.args.fields["urn"].string_value
            id_, state = self._states.get(urn, ("", b""))
            resource = Struct()
            resource.update({"urn": urn, "id": id_})
            resource.fields["state"].struct_value.MergeFromString(state)
        else:
            resource = self._answer(request.tok)
        response = resource_pb2.ResourceInvokeResponse()
        getattr(response, "return").CopyFrom(resource)  # the field name is a Python keyword
        return response

    def Call(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.ResourceCallRequest
    ) -> provider_pb2.CallResponse:
        """Answers a resource method from `answers`, with the error of `Invoke`."""
        response = provider_pb2.CallResponse()
        getattr(response, "return").CopyFrom(self._answer(request.tok))
        return response

    def RegisterStackTransform(self, request: callback_pb2.Callback) -> NoReturn:  # noqa: N802 - the protocol's name
        """Raises an OfflineError, because a preview without the transform would be wrong."""
        _reject_transforms(f"stack transform {request.token}")

    def RegisterStackInvokeTransform(self, request: callback_pb2.Callback) -> NoReturn:  # noqa: N802 - the protocol's name
        """Raises an OfflineError, as `RegisterStackTransform` does."""
        _reject_transforms(f"stack invoke transform {request.token}")

    def _answer(self, token: str) -> Struct:
        if token not in self._answers:
            raise OfflineError(
                f"{token}: this function needs a cloud or a cluster, which an offline preview does not have; "
                "read the value from the stack's configuration, or pass an answer to render()"
            )
        answer = Struct()
        answer.update(self._answers[token])
        return answer


def _reject_transforms(what: str) -> NoReturn:
    raise OfflineError(f"{what}: transforms are not supported in an offline preview; set the property on the resource")


def _id(name: str, inputs: Mapping[str, Json]) -> str:
    own = text_at(inputs, "metadata", "name")
    namespace = text_at(inputs, "metadata", "namespace")
    if UNKNOWN in (own, namespace):
        return ""
    return f"{namespace}/{own}" if own and namespace else own or name


def _urns(urns: Iterable[str]) -> tuple[str, ...]:
    """URNs in order. Each message has its own copy of a text; resources share one."""
    return tuple(sorted(map(intern, urns)))
