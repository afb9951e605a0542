"""Values that a rule needs and that are not known."""

from collections.abc import Generator
from contextlib import contextmanager

from rule_engine.reads import Path


class UnknownValueError(Exception):
    """A rule needs a value that is not known yet, or that does not have the type that its API requires.

    Args:
        path: the property path of the value.
        why: the reason; never contains the value itself.
    """

    def __init__(self, path: Path, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{'.'.join(path)} {why}")


class UnknownValues:
    """Unknown values that must hide nothing that is known: collected, and raised at the end."""

    def __init__(self) -> None:
        self.errors: list[UnknownValueError] = []

    @contextmanager
    def collected(self) -> Generator[None]:
        """Keeps an `UnknownValueError` of the block, which ends the block."""
        try:
            yield
        except UnknownValueError as error:
            self.errors.append(error)

    def raise_first(self) -> None:
        """Raises the first of the errors, if there is one.

        Raises:
            UnknownValueError: as collected.
        """
        if self.errors:
            raise self.errors[0]
