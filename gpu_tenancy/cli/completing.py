"""What `kubectl` calls to complete the words of `kubectl tenancy`."""

import os
import shlex
import sys
from typing import Final

from gpu_tenancy.cli.main import app

_PROGRAM: Final = "kubectl-tenancy"
_DIRECTIVE: Final = ":0"
"""The shell completes names of files if nothing else fits: https://pkg.go.dev/github.com/spf13/cobra#ShellCompDirective."""


def main() -> None:
    """Prints the words that can follow the arguments, of which the last is incomplete, and then a directive.

    https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/#naming-a-plugin
    """
    words = sys.argv[1:] or [""]
    os.environ |= {
        "_KUBECTL_TENANCY_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join([_PROGRAM, *words]),
        "COMP_CWORD": str(len(words)),
    }
    try:
        app(args=[], prog_name=_PROGRAM)
    finally:
        sys.stdout.write(f"{_DIRECTIVE}\n")
