"""The stack reference, docs/stack-reference.md: every section and key of a stack's file, from the model's schema.

Renderers of JSON schemas know no examples of stacks, no units, and no places of sections in the file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import yaml
from pydantic.alias_generators import to_camel

from gpu_tenancy.base.grouping import grouped
from gpu_tenancy.base.quantity import BYTES_PATTERN, CPU_PATTERN, DURATION_PATTERN
from gpu_tenancy.model.catalogue.operators import operators
from gpu_tenancy.model.fields import MOST_OBJECTS
from gpu_tenancy.model.schema import SECRET
from gpu_tenancy.model.spec import NAMESPACE
from gpu_tenancy.model.yaml import read_table

Schema: TypeAlias = Mapping[str, Any]


def default_text(schema: Schema) -> str:
    """The default of a key, or `none`."""
    default = _filled(schema.get("default"))
    return "none" if default in (None, {}, [], "") else f"`{flow(default)}`"


def _filled(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    filled = {key: _filled(entry) for key, entry in cast("dict[str, Any]", value).items()}
    return {key: entry for key, entry in filled.items() if entry not in (None, {}, [])}


class _Dumper(yaml.SafeDumper):
    """Writes `off` without quotes, since a stack has no such word for false."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        first: [(tag, form) for tag, form in resolvers if first in "tTfF" or not tag.endswith(":bool")]
        for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }


def flow(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    text = text.removesuffix("\n").removesuffix("\n...")
    # At the top a pair needs no braces.
    return text[1:-1] if isinstance(value, dict) and len(cast("dict[str, Any]", value)) == 1 else text


# Examples of keys that no stack of the repository sets, by section and key.
EXAMPLES: Final = Path(__file__).with_name("documentation.yaml")
_LONGEST: Final = 72  # characters of an example from a stack that fit on a line
_WIDEST: Final = 130  # characters of an example of this module; above, each key has an example in its own section
_SAVED: Final = 20  # words of descriptions that are worth a link
_UNITS: Final = {CPU_PATTERN: "CPUs", BYTES_PATTERN: "bytes", DURATION_PATTERN: "duration"}
# Names of entries, unless they are the name of the map without its last letter.
_SINGULAR: Final = {
    "gpus": "flavor", "quota": "flavor", "gangs": "flavor", "priorities": "class", "serving": "server",
    "training": "job", "machines": "machine", "prices": "machine",
}  # fmt: skip


class Reference:
    """The sections of a stack's file, with places, and examples of keys from some stacks."""

    def __init__(self, schema: Schema, configs: Iterable[Schema]) -> None:
        self.sections: Mapping[str, Schema] = schema["$defs"]
        config = schema["properties"]["config"]
        prefix = f"{NAMESPACE}:"
        self.top: Mapping[str, Schema] = {
            key.removeprefix(prefix): value for key, value in config["properties"].items()
        }
        self.required = {key.removeprefix(prefix) for key in config["anyOf"][0]["required"]}
        self.examples: dict[tuple[str, str], Any] = {}
        for section, keys in read_table(EXAMPLES).items():
            self.examples |= {(section, key): value for key, value in keys.items()}
        for name, operator in operators().items():
            self.examples["Operators", to_camel(name)] = operator.example
        for stack in configs:
            for name, value in stack.items():
                self._add("", name, value)
                self._collect(self.top[name], value)

    @cached_property
    def places(self) -> dict[str, str]:
        """Path of each section in the file, such as `teams.<team>.serving.<server>`; the first of several."""
        places: dict[str, str] = {}
        waiting = [(key, schema) for key, schema in self.top.items()]
        while waiting:
            path, schema = waiting.pop(0)
            for name, inner in self._referenced(schema, path):
                if name not in places:
                    places[name] = inner
                    properties: Schema = self.sections[name].get("properties", {})
                    waiting += [(f"{inner}.{key}", value) for key, value in properties.items()]
        return places

    def _referenced(self, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
        if "$ref" in schema:
            yield _name(schema), path
        for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from self._referenced(branch, path)
        if "items" in schema:
            yield from self._referenced(schema["items"], f"{path}[]")
        for value in _values(schema):
            plural = path.rpartition(".")[2]
            singular = _SINGULAR.get(plural, plural.removesuffix("[]").removesuffix("s"))
            yield from self._referenced(value, f"{path}.<{singular}>")

    def _collect(self, schema: Schema, value: Any) -> None:
        if isinstance(value, list) and "items" in schema:
            for item in cast("list[Any]", value):
                self._collect(schema["items"], item)
        if not isinstance(value, dict):
            return
        keys = cast("dict[str, Any]", value)
        for inner in _values(schema):
            for entry in keys.values():
                self._collect(inner, entry)
        if "$ref" in schema:
            name = _name(schema)
            properties = self.sections[name].get("properties", {})
            # A section has these keys, and their fixed values if there are any.
            if all(key in properties and properties[key].get("const", entry) == entry for key, entry in keys.items()):
                for key, entry in keys.items():
                    self._add(name, key, entry)
                    self._collect(properties[key], entry)
        for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            self._collect(branch, value)

    def _add(self, section: str, key: str, value: Any) -> None:
        if len(flow({key: value})) <= _LONGEST:
            self.examples.setdefault((section, key), value)


def stack_page(reference: Reference) -> str:
    """The stack reference: every section and key."""
    lines = [head("stack"), "", *_keys(reference, "", reference.top, reference.required)]
    described: dict[tuple[str, ...], str] = {}
    for key in reference.top:
        sections = [(name, path) for name, path in reference.places.items() if path.partition(".")[0] == key]
        if sections:
            lines += ["", f"## {key}"]
        for name, path in sections:
            lines += _section(reference, path, name, described)
    return "\n".join(lines) + "\n"


def _section(reference: Reference, path: str, name: str, described: dict[tuple[str, ...], str]) -> Iterator[str]:
    """A section. Keys that an earlier section describes in the same words are a link to it, if that saves enough."""
    schema = reference.sections[name]
    keys: Schema = schema.get("properties", {})
    required: Iterable[str] = schema.get("required", ())
    marks = {key: (key, str(key in required), str(keys[key])) for key in keys}
    earlier = grouped((described[marks[key]], key) for key in keys if marks[key] in described)
    links = {
        holder: shared
        for holder, shared in earlier.items()
        if sum(len(keys[key].get("description", "").split()) for key in shared) >= _SAVED
    }
    own = {key: keys[key] for key in keys if not any(key in shared for shared in links.values())}
    for key in own:
        described.setdefault(marks[key], name)
    yield from ("", f'<a id="{_anchor(name)}"></a>', "", f"### `{path}`: {name}", "")
    if "description" in schema:
        yield from (escaped(schema["description"]), "")
    yield from _keys(reference, name, own, required)
    if links:
        also = (f"{', '.join(f'`{key}`' for key in shared)} as in {_link(holder)}" for holder, shared in links.items())
        yield from ("", f"Also {'; '.join(also)}.")


def _keys(reference: Reference, section: str, keys: Schema, required: Iterable[str]) -> Iterator[str]:
    yield from (_definition(key, schema, required=key in required) for key, schema in keys.items())
    yield from _examples(reference, section, keys)


def _definition(key: str, schema: Schema, *, required: bool) -> str:
    default = "required" if required else default_text(schema)
    shown = "" if default == "none" else f", {default}" if required else f", default {default}"
    text = schema.get("description", "")
    return f"- **`{key}`** ({_type(schema)}{shown}){': ' if text else ''}{escaped(text)}"


def _examples(reference: Reference, section: str, keys: Schema) -> Iterator[str]:
    values = {key: keys[key].get("const", reference.examples.get((section, key))) for key in keys}
    lines = [flow({key: value}) for key, value in values.items() if value is not None]
    if lines:
        yield from ("", "```yaml", *(line for line in lines if len(line) <= _WIDEST), "```")


def _link(section: str) -> str:
    return f"[{section}](#{_anchor(section)})"


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return _link(_name(schema))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if not branches:
        return _UNITS.get(schema.get("pattern", "")) or _plain(schema)
    # The page describes once for all what can be a secret.
    named = [branch for branch in branches if branch.get("type") != "null" and branch != SECRET]
    return " or ".join(dict.fromkeys(map(_type, named)))


def _plain(schema: Schema) -> str:
    kind: Any = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object":
        return " or ".join(dict.fromkeys(f"map of {_type(value)}" for value in _values(schema))) or "map of any value"
    if isinstance(kind, list):
        return " or ".join(cast("list[str]", kind))
    minimum, maximum, above = (schema.get(bound) for bound in ("minimum", "maximum", "exclusiveMinimum"))
    unusual = maximum not in {None, MOST_OBJECTS}  # the page says the usual maximum once for all
    if unusual and minimum is not None:
        return f"{kind}, {minimum:,} to {maximum:,}"
    bounds = f", above {above}" if above is not None else f", at least {minimum}" if minimum else ""
    return f"{kind}{bounds}{f', at most {maximum:,}' if unusual else ''}"


def _values(schema: Schema) -> list[Schema]:
    # The keys of the map are names of the user's.
    values = [schema.get("additionalProperties"), *schema.get("patternProperties", {}).values()]
    return [value for value in values if isinstance(value, dict) and value]


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _anchor(section: str) -> str:
    return f"section-{section.lower()}"


def head(reference: str) -> str:
    """Introduction of a reference: `reference_<name>.md` beside this module."""
    return Path(__file__).with_name(f"reference_{reference}.md").read_text(encoding="utf-8").strip()


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    cells = ([escaped(cell).replace("|", "\\|") for cell in row] for row in rows)
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in cells)]


def escaped(text: str) -> str:
    """Text on one line; `<` outside code would begin an HTML tag."""
    pieces = " ".join(text.split()).split("`")
    return "`".join(piece if at % 2 else piece.replace("<", "&lt;") for at, piece in enumerate(pieces))
