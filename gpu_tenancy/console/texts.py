"""Numbers and lists of names in texts for people."""

from collections.abc import Sequence


def plural(count: int, noun: str, nouns: str = "") -> str:
    """`1 pod`, `3 pods`; `nouns` where the plural has no plain s."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def first_names(names: Sequence[str], shown: int) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
