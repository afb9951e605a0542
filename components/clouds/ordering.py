"""The order of resources where a value, and not a resource, must wait."""

import pulumi


def once_there(value: pulumi.Input[str], *others: pulumi.Output[str]) -> pulumi.Output[str]:
    """The same value, which is known once others are: whoever uses it comes after the resources that have these."""
    return pulumi.Output.all(value, *others).apply(_first)


def _first(values: list[str]) -> str:
    return values[0]
