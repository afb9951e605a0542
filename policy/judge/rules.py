"""Rules: what must hold of one sort of thing, why, and how to mend what does not."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pulumi_policy import EnforcementLevel, Severity
from pydantic import BaseModel, ConfigDict, ValidationError

from judge.resources import Placed, Resource, Subject
from judge.stacks import Stack


class Settings(BaseModel):
    """What an organisation may set of a rule: each field with its default and a sentence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


S = TypeVar("S", bound=Placed)
C = TypeVar("C", bound=Settings)


@dataclass(frozen=True, slots=True)
class Rule(Generic[S, C]):
    """One rule.

    Attributes:
        name: what an organisation's configuration calls it: `gpu-request-equals-limit`.
        says: what must hold, one sentence.
        why: what happens where it does not.
        mend: what to do then.
        link: a page that says so.
        severity: how bad it is.
        level: how it is enforced where nobody says otherwise.
        on: what it is about.
        judge: yields a sentence for each thing that is wrong with a subject: what is there, and what to write. Its
            place goes before the sentence. It may raise `CannotTellError`.
        settings: what can be set.
        whole: whether the judge needs the whole stack, which is known only when all resources are.
        remedy: mends a resource's properties where that is safe: takes its type and the properties as they go over
            the wire (JSON, unknown values and secrets marked), changes these in place, says whether it did. Used
            where the level is `remediate`.
    """

    name: str
    says: str
    why: str
    mend: str
    link: str
    severity: Severity
    level: EnforcementLevel
    on: Subject[S]
    judge: "Callable[[S, C], Iterable[str]] | Callable[[S, C, Stack], Iterable[str]]"
    settings: type[C]
    whole: bool = False
    remedy: Callable[[str, dict[str, Any], C], bool] | None = None

    def sentences(self, part: S, settings: C, stack: Stack) -> Iterable[str]:
        """What is wrong with one subject, one after the other.

        Raises:
            CannotTellError: what comes next cannot be known; what came before holds nevertheless.
        """
        judge: Callable[..., Iterable[str]] = self.judge
        return judge(part, settings, stack) if self.whole else judge(part, settings)

    def schema(self) -> dict[str, dict[str, Any]]:
        """JSON schema of each setting, by name, as Pulumi wants it: without references."""
        return {key: _flat(each) for key, each in self.settings.model_json_schema().get("properties", {}).items()}

    def configured(self, given: Mapping[str, Any]) -> C:
        """Its settings, some of them given by the organisation.

        Raises:
            ConfigError: with all that is wrong in them.
        """
        try:
            return self.settings.model_validate(dict(given))
        except ValidationError as error:
            wrong = [
                f"{self.name}.{'.'.join(str(part) for part in each['loc'])}: {each['msg'][:1].lower()}{each['msg'][1:]}"
                f" (it is {each['input']!r}); the rule's settings are {', '.join(self.settings.model_fields) or 'none'}"
                for each in error.errors()
            ]
            raise ConfigError("\n".join(wrong)) from error


AnyRule = Rule[Any, Any]


class ConfigError(ValueError):
    """An organisation's configuration of a pack is wrong; the text names rule, setting, value and mend."""


@dataclass(frozen=True, slots=True)
class Pack:
    """A policy pack: its rules, and how resources are exempted from them.

    Attributes:
        exemptions: what a resource says of exemptions, by the name of the rule: `2027-01-31 why`.
    """

    name: str
    version: str
    description: str
    rules: tuple[AnyRule, ...]
    exemptions: Callable[[Resource], Mapping[str, str]]

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            message = f"two rules of pack {self.name} are called {', '.join(twice)}"
            raise ValueError(message)


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """A field's schema without pydantic's titles."""
    return {key: value for key, value in schema.items() if key != "title"}
