"""Errors that the `tenancy` command shows as a sentence, without a trace of calls."""


class ConsoleError(Exception):
    """Something outside this program is not as it must be.

    Attributes:
        what: what failed, with the place and value.
        mend: what to do about it.
    """

    def __init__(self, what: str, mend: str) -> None:
        self.what, self.mend = what, mend
        super().__init__(f"{what}; {mend}")
