"""Rules for deletion protection and owner tags of clusters and node pools."""

from collections.abc import Iterator

from pydantic import Field

from cloud_rules.subjects import PROTECTABLE, TAGGED
from cloud_rules.tags import plain, tags, where
from rule_engine import ADVICE, MUST, Resource, Settings, Severity, rule


class Protection(Settings):
    """Requirement to protect clusters and pools."""

    required: bool = Field(default=False, description="Whether protection is required; set true in production.")


@rule(
    "deletion-protected",
    rationale="Renaming a resource deletes it, together with all jobs that run on it.",
    fix="Set the resource option `protect`.",
    link="https://www.pulumi.com/docs/iac/concepts/options/protect/",
    severity=Severity.HIGH,
    level=MUST,
    on=PROTECTABLE,
)
def deletion_protected(resource: Resource, settings: Protection) -> Iterator[str]:
    """Clusters and node pools must be protected from deletion."""
    if settings.required and not resource.protect:
        yield "is not protected: Pulumi can delete or replace it; set the resource option protect: true"


class Owners(Settings):
    """Required tags for owner and cost center."""

    keys: list[str] = Field(
        ["owner", "cost-center", "environment"],
        description="Required tags or labels; case, `-` and `_` are ignored (`CostCenter`).",
    )


@rule(
    "owner-tags",
    rationale="Resources without an owner are not cleaned up, and their cost cannot be attributed.",
    fix="Add the tags (labels on GCP).",
    link="https://www.pulumi.com/docs/insights/policy/",
    severity=Severity.LOW,
    level=ADVICE,
    on=TAGGED,
)
def owner_tags(resource: Resource, settings: Owners) -> Iterator[str]:
    """Clusters and node pools must have tags for their owner and cost center."""
    present = {plain(key): view for key, view in tags(resource).items()}
    missing = [key for key in settings.keys if plain(key) not in present or not present[plain(key)].text().strip()]
    if missing:
        yield f"missing tags or labels: {', '.join(missing)}; add them under {where(resource)}"
