"""What a change does to Secrets, as reasons of a verdict."""

from collections.abc import Iterator

from gpu_tenancy.base.texts import first_names, plural
from gpu_tenancy.model.outlook import StackOutlook
from gpu_tenancy.model.plan.secrets import UNDECLARED, SecretRow

_LISTED = 3
"""Users that a reason names before it counts the others."""


def secret_reasons(before: StackOutlook | None, now: StackOutlook) -> tuple[str, ...]:
    """What a team can read in the cloud that it cannot at the base, and which Secrets get another source.

    `ml-research gains a secret of the cloud: wandb (aws://eu-central-1/ml/wandb)`.
    """
    return tuple(_reasons(before, now)) if before else ()


def _reasons(before: StackOutlook, now: StackOutlook) -> Iterator[str]:
    old = {(row.team, row.name): row for row in before.secrets}
    read = {(row.team, row.source) for row in before.secrets if row.right}
    for row in now.secrets:
        was = old.get((row.team, row.name))
        if row.right and (row.team, row.source) not in read:
            yield f"{row.team} gains a secret of the cloud: {row.name} ({row.source})"
        if was and was.source != row.source and UNDECLARED not in {was.source, row.source}:
            yield f"Secret {row.name} of {row.team} changes from {was.source} to {row.source}{_affected(row)}"


def _affected(row: SecretRow) -> str:
    """Who uses it, and whether a change reaches them."""
    if not row.users:
        return ", and nobody uses it"
    return f", for {plural(len(row.users), 'user', 'users')} ({first_names(list(row.users), _LISTED)}): {row.reach}"
