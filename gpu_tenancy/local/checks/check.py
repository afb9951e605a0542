"""The result of one check on a cluster."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check.

    Attributes:
        promise: the checked fact, in the present tense.
        seen: observation, with the messages of the API server or the controller.
        holds: whether the observation confirms the fact; None if it was not checked, for the reason in `seen`.
    """

    promise: str
    seen: str
    holds: bool | None
