"""The stack as the Pulumi engine hands it to the program."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pulumi
from pulumi.runtime.config import CONFIG, get_config_env

from gpu_tenancy.model.load import load
from gpu_tenancy.model.problems import StackError
from gpu_tenancy.model.source import Source, read_config, read_file
from gpu_tenancy.model.spec import Stack

from .provider.inputs import Late, without_secrets


def configured_stack(project: Path) -> tuple[Stack, Mapping[str, Late]]:
    """The stack of this run: values from the engine, places of errors from the stack's file where it is at hand.

    A secret that reaches pods unchanged, such as a value of `env`, is a placeholder in the stack, so that the plan does
    not have it in clear text.

    Args:
        project: folder of `Pulumi.yaml`.

    Returns:
        The stack, and the secrets by their placeholders.

    Raises:
        pulumi.RunError: with everything that is wrong in the stack; Pulumi prints it without a trace of calls.
    """
    values = CONFIG.get() or get_config_env()
    try:
        source = read_config({key: str(value) for key, value in values.items()}, _beside(project))
        inputs = without_secrets(source)
        return load(replace(source, sections=inputs.sections)), inputs.late
    except StackError as error:
        raise pulumi.RunError(str(error)) from error


def _beside(project: Path) -> Source | None:
    file = project / "stacks" / f"Pulumi.{pulumi.get_stack()}.yaml"
    try:
        return read_file(file, f"stacks/{file.name}")
    except StackError:
        return None  # The engine may keep a stack's config elsewhere.
