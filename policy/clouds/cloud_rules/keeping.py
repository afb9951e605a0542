"""Rules for whose a cluster or pool is, and that it stays."""

from collections.abc import Iterator
from typing import Final

from pydantic import Field

from cloud_rules.subjects import KEPT, TAGGED, Whole
from cloud_rules.tags import plain, tags, where
from judge import ADVICE, MUST, AnyRule, Rule, Settings, Severity


class Protection(Settings):
    """Whether clusters and pools must be protected."""

    asked: bool = Field(default=False, description="Whether they must be; for production.")


def _protected(part: Whole, settings: Protection) -> Iterator[str]:
    if settings.asked and not part.resource.protect:
        yield "Pulumi would delete it, or replace it, without asking; set the resource option protect: true"


DELETION_PROTECTED: Final = Rule(
    name="deletion-protected",
    says="Pulumi refuses to delete clusters and node pools.",
    why="A renamed resource is a deleted one, with all jobs that run on it.",
    mend="Set the resource option `protect`.",
    link="https://www.pulumi.com/docs/iac/concepts/options/protect/",
    severity=Severity.HIGH,
    level=MUST,
    on=KEPT,
    judge=_protected,
    settings=Protection,
)


class Owners(Settings):
    """What must be said of whose something is."""

    keys: list[str] = Field(
        ["owner", "cost-center", "environment"],
        description="Tags or labels that must be there; capitals, `-` and `_` do not matter (`CostCenter`).",
    )


def _owned(part: Whole, settings: Owners) -> Iterator[str]:
    said = {plain(key): view for key, view in tags(part.resource).items()}
    missing = [key for key in settings.keys if plain(key) not in said or not said[plain(key)].text().strip()]
    if missing:
        yield f"says no {', '.join(missing)}; write it under {where(part.resource)}"


OWNER_TAGS: Final = Rule(
    name="owner-tags",
    says="Clusters and node pools say whose they are and who pays.",
    why="Nobody dares to delete what belongs to nobody, and a bill without a name is paid by everyone.",
    mend="Write the tags (on GCP: labels).",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.LOW,
    level=ADVICE,
    on=TAGGED,
    judge=_owned,
    settings=Owners,
)

RULES: Final[tuple[AnyRule, ...]] = (DELETION_PROTECTED, OWNER_TAGS)
