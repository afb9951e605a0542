"""The command reference, docs/commands.md: every command with its arguments and options.

`typer utils docs` writes examples as grey HTML, which cannot be copied or tested, and cuts summaries at 45 characters.
"""

from collections.abc import Iterator
from typing import Any

import typer
from rich.markup import render
from typer.core import TyperArgument, TyperGroup, TyperOption

from gpu_tenancy.cli.main import app
from gpu_tenancy.cli.markdown import escaped, head, table


def commands_page() -> str:
    """The command reference: every command with its arguments and options."""
    commands = dict(command_tree(typer.main.get_command(app)))
    index = [[f"[`{name}`](#{name.replace(' ', '-')})", _summary(command.help)] for name, command in commands.items()]
    lines = [head("commands"), "", *table(["command", "description"], index)]
    for name, command in commands.items():
        lines += ["", *_command(name, command)]
    return "\n".join(lines) + "\n"


def command_tree(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The commands of a group and of the groups in it, each with the words that follow `tenancy`."""
    if not isinstance(command, TyperGroup):
        yield name, command
        return
    for inner, below in command.commands.items():
        yield from command_tree(below, f"{name} {inner}".strip())


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if isinstance(parameter, TyperArgument)]
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption) and not parameter.hidden]
    yield from (f"## {name}", "")
    paragraphs = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    example = [part for part in paragraphs if part.startswith("[dim]")]
    yield from (line for part in paragraphs if part not in example for line in (escaped(_unmarked(part)), ""))
    yield "```text"
    yield " ".join(
        ["tenancy", name, *(_usage(argument) for argument in arguments), *(["[OPTIONS]"] if options else [])]
    )
    yield "```"
    if example:
        yield from ("", "Example:", "", "```sh", *(_unmarked(part) for part in example), "```")
    if arguments:
        rows = [[f"`{_label(argument)}`", _argument_default(argument), argument.help or ""] for argument in arguments]
        yield from ("", *table(["argument", "default", "description"], rows))
    if options:
        rows = [[_option(option), _option_default(option), option.help or ""] for option in options]
        yield from ("", *table(["option", "default", "description"], rows))


def _summary(text: str | None) -> str:
    return _unmarked(" ".join((text or "").split("\n\n")[0].split()))


def _unmarked(text: str) -> str:
    """Text without rich's markup."""
    return render(text).plain


def _label(argument: TyperArgument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _usage(argument: TyperArgument) -> str:
    label = _label(argument) + ("..." if argument.nargs != 1 else "")
    return label if argument.required else f"[{label}]"


def _argument_default(argument: TyperArgument) -> str:
    return "required" if argument.required else _shown(argument.default)


def _option(option: TyperOption) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    return f"{names} `{option.metavar or _placeholder(option)}`" + (" (repeatable)" if option.multiple else "")


def _placeholder(option: TyperOption) -> str:
    kind = getattr(option.type_descriptor.annotation, "__name__", "")
    return {"Path": "PATH", "int": "INTEGER", "float": "NUMBER"}.get(kind, "TEXT")


def _option_default(option: TyperOption) -> str:
    if option.is_flag:
        return "on" if option.default else "off"
    return "required" if option.required else _shown(option.default)


def _shown(default: Any) -> str:
    return "none" if default in (None, False, "", ()) or default == [] else f"`{default}`"
