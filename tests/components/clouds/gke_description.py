"""GKE's API, compared with our inputs: the messages of google-cloud-container, version v1.

Pulumi's inputs become the message of a CreateCluster or CreateNodePool request, by the table of names that differ; an
input that maps to no field does not parse. The messages do not mark required fields, and some enumerations are plain
strings there: `gke_rules.yaml` has both, each with its source.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml
from cloud_descriptions import Inputs, Place
from google.cloud.container_v1 import types
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from gpu_tenancy.engine.recording import UNKNOWN

Names: TypeAlias = tuple[str, ...]  # a place without list positions

CLUSTER: Final = "gcp:container/cluster:Cluster"
POOL: Final = "gcp:container/nodePool:NodePool"
# Lists of Pulumi that are maps in the API, with the input that is the key.
KEYED: Final[Mapping[Names, str]] = {("maintenancePolicy", "maintenanceExclusions"): "exclusionName"}
# Lists of Pulumi that are one message in the API.
SINGLE: Final[frozenset[Names]] = frozenset(
    {("maintenancePolicies",), ("maintenancePolicies", "exclusionUntilEndOfSupports")}
)
# Inputs in the request's path, or only the provider's.
OF_PROVIDER: Final[Mapping[str, Mapping[str, type]]] = {
    POOL: {"cluster": str, "location": str, "project": str},
    CLUSTER: {
        "location": str,
        "project": str,
        "deletionProtection": bool,
        "removeDefaultNodePool": bool,
        "networkingMode": str,
    },
}


@dataclass(frozen=True)
class Need:
    """A required field of a message."""

    within: Names  # names that lead to that message
    key: str
    when: tuple[str, object] | None = None  # another field with a value, without which the field is not required


def _names_of(place: str) -> Names:
    return tuple(place.split(".")) if place else ()


def _need(row: Mapping[str, Any]) -> Need:
    when = row.get("when")
    return Need(_names_of(row["in"]), row["key"], (when[0], when[1]) if when else None)


_FILE: Final = Path(__file__).with_name("gke_rules.yaml")
_TABLES: Final[Mapping[str, Any]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
_RULES: Final[Mapping[str, Any]] = {POOL: _TABLES["pool"], CLUSTER: _TABLES["cluster"]}


def _by_place(table: str) -> Mapping[str, Mapping[Names, Any]]:
    return {token: {_names_of(key): value for key, value in rules[table].items()} for token, rules in _RULES.items()}


RENAMED: Final[Mapping[str, Mapping[Names, Names]]] = {
    token: {place: _names_of(name) for place, name in names.items()} for token, names in _by_place("renamed").items()
}
WORDS: Final[Mapping[str, Mapping[Names, Sequence[str]]]] = _by_place("words")
PATTERNS: Final[Mapping[str, Mapping[Names, str]]] = _by_place("patterns")
NEEDS: Final = {token: tuple(_need(row) for row in rules["needs"]) for token, rules in _RULES.items()}

MESSAGES: Final[Mapping[str, Any]] = {CLUSTER: types.Cluster, POOL: types.NodePool}


class GkeDescription:
    stacks: Sequence[str] = ("prod-gcp",)
    types: frozenset[str] = frozenset(MESSAGES)
    undescribed: Mapping[str, str] = {
        "gcp:kms/keyRing:KeyRing": "Cloud KMS's messages are in no development dependency",
        "gcp:kms/cryptoKey:CryptoKey": "Cloud KMS's messages are in no development dependency",
        "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember": "a grant: the provider's own read-modify-write of a policy",
        "gcp:storage/managedFolderIamMember:ManagedFolderIamMember": (
            "a grant: the provider's own read-modify-write of a policy"
        ),
        "gcp:projects/iAMMember:IAMMember": "a grant: the provider's own read-modify-write of a policy",
        "gcp:projects/serviceIdentity:ServiceIdentity": "Service Usage's messages are in no development dependency",
        "gcp:serviceaccount/account:Account": "IAM's messages are in no development dependency",
        "gcp:compute/resourcePolicy:ResourcePolicy": "Compute Engine's messages are in no development dependency",
    }

    def problems(self, token: str, inputs: Inputs) -> list[str]:
        problems = [f"{need.key} is missing in {_shown(at)}" for at, need, there in _needs(token, inputs) if not there]
        for key, kind in OF_PROVIDER[token].items():
            if key in inputs and not isinstance(inputs[key], kind):
                problems.append(f"{key}: {inputs[key]!r} is no {kind.__name__}")
        problems += [problem for place, value in _leaves(inputs) for problem in _text_problems(token, place, value)]
        message = MESSAGES[token]
        request = _request(token, inputs)
        try:
            ParseDict(_stand_ins(request, message.pb(message()).DESCRIPTOR), cast("Message", message.pb(message())))
        except ParseError as error:
            problems.append(str(error))
        return problems

    def required(self, token: str, inputs: Inputs) -> list[Place]:
        return list(dict.fromkeys((*at, need.key) for at, need, there in _needs(token, inputs) if there))

    def enumerated(self, token: str, inputs: Inputs) -> list[Place]:
        """Enumerations, by the messages or the table beside them."""
        return [place for place, value in _leaves(inputs) if isinstance(value, str) and _of_few_words(token, place)]


def _names(place: Place) -> Names:
    return tuple(part for part in place if isinstance(part, str))


def _shown(place: Place) -> str:
    return ".".join(str(part) for part in place) or "the resource"


def _leaves(value: object, place: Place = ()) -> Iterator[tuple[Place, object]]:
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _leaves(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from _leaves(inner, (*place, index))
    else:
        yield place, value


def _things(value: object, names: Names, place: Place = ()) -> Iterator[tuple[Place, Mapping[str, object]]]:
    """Each value at the end of some names, through lists on the way."""
    if isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from _things(inner, names, (*place, index))
    elif isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value)
        if not names:
            yield place, entries
        elif names[0] in entries:
            yield from _things(entries[names[0]], names[1:], (*place, names[0]))


def _needs(token: str, inputs: Inputs) -> Iterator[tuple[Place, Need, bool]]:
    for need in NEEDS[token]:
        for place, thing in _things(inputs, need.within):
            if need.when is None or thing.get(need.when[0]) == need.when[1]:
                yield place, need, thing.get(need.key) not in (None, [])


def _text_problems(token: str, place: Place, value: object) -> Iterator[str]:
    if not isinstance(value, str) or value == UNKNOWN:
        return
    names = _names(place)
    words = WORDS[token].get(names)
    if words and value not in words:
        yield f"{_shown(place)}: {value} is none of {', '.join(sorted(words))}"
    pattern = PATTERNS[token].get(names) or PATTERNS[token].get((*names[:-1], "*"))
    if pattern and re.fullmatch(pattern, value) is None:
        yield f"{_shown(place)}: {value} is not like {pattern}"
    if names[-1] == "cidrBlock":
        try:
            ip_network(value)
        except ValueError as error:
            yield f"{_shown(place)}: {error}"


def _request(token: str, value: Any, names: Names = ()) -> Any:
    if isinstance(value, list):
        items = [_request(token, item, names) for item in cast("list[Any]", value)]
        if names in SINGLE:
            (items,) = items
        return {item.pop(KEYED[names], ""): item for item in items} if names in KEYED else items
    if not isinstance(value, Mapping):
        return value
    made: dict[str, Any] = {}
    for key, inner in cast("Mapping[str, Any]", value).items():
        if names or key not in OF_PROVIDER[token]:
            here = (*names, key)
            _put(made, RENAMED[token].get(here, (key,)), _request(token, inner, here))
    return made


def _put(into: dict[str, Any], path: Names, value: Any) -> None:
    for key in path[:-1]:
        into = into.setdefault(key, {})
    into[path[-1]] = value


def _field(message: Descriptor, name: str) -> FieldDescriptor | None:
    return next((field for field in message.fields if field.json_name == name), None)


def _stand_ins(value: Any, message: Descriptor) -> Any:
    """The same with a valid value in place of one that only the cloud knows."""
    made: dict[str, Any] = {}
    for key, inner in value.items():
        field = _field(message, key)
        made[key] = inner if field is None else _stand_in(inner, field)
    return made


def _stand_in(value: Any, field: FieldDescriptor) -> Any:
    if value == UNKNOWN:
        return field.enum_type.values[0].name if field.enum_type else "" if field.type == field.TYPE_STRING else None
    nested = field.message_type
    if nested is None or nested.GetOptions().map_entry:
        return value
    if isinstance(value, list):
        return [_stand_ins(item, nested) if isinstance(item, dict) else item for item in cast("list[Any]", value)]
    return _stand_ins(value, nested) if isinstance(value, dict) else value


def _of_few_words(token: str, place: Place) -> bool:
    names = _names(place)
    if names in WORDS[token]:
        return True
    if names[0] in OF_PROVIDER[token]:
        return False
    message = MESSAGES[token]
    descriptor: Descriptor | None = message.pb(message()).DESCRIPTOR
    field: FieldDescriptor | None = None
    for index, name in enumerate(names):
        for part in RENAMED[token].get(names[: index + 1], (name,)):
            field = _field(descriptor, part) if descriptor else None
            descriptor = field.message_type if field else None
    return field is not None and field.enum_type is not None


DESCRIPTION = GkeDescription()
