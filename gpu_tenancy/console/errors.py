"""Errors that the `tenancy` command prints as one message, without a traceback."""


class ConsoleError(Exception):
    """A problem outside this program: in a file, a cluster, the network or the arguments.

    Attributes:
        what: the problem, with its place and value.
        fix: what the user should do, in the imperative.
    """

    def __init__(self, what: str, fix: str) -> None:
        self.what, self.fix = what, fix
        super().__init__(f"{what}; {fix}")
