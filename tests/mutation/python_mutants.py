"""Mutants of Python modules: one operator, value or statement changed at a time."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_CALLED: Final = {"any": "all", "all": "any", "max": "min", "min": "max"}
_TEXTS: Final = frozenset({"description", "rationale", "fix", "link", "severity", "level", "maxsplit", "repr"})
"""Keyword arguments that no finding depends on."""
_TYPES: Final = frozenset({"Annotated", "Callable", "dict", "frozenset", "list", "set", "tuple"})
"""Names whose subscripts are types, also where they are called: `dict[str, int]()`."""
CONSTANTS: Final = "/constants"
"""After the file's name in names of mutants of what an import evaluates."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one change.

    Attributes:
        file: the module's file.
        name: the file's part, the function, the changed code and the change: the same as long as these are.
        line: where it is, for whoever reads.
        within: qualified name and first line of the outermost function that it changes; None if it is evaluated when
            the module is imported.
        tree: the changed module.
    """

    file: Path
    name: str
    line: int
    within: tuple[str, int] | None
    change: Callable[[ast.Module], None]

    def tree(self) -> ast.Module:
        """The module's syntax with the change."""
        tree = ast.parse(self.file.read_bytes())
        self.change(tree)
        return ast.fix_missing_locations(tree)


@dataclass(frozen=True, slots=True)
class _Place:
    node: ast.AST
    names: tuple[str, ...]
    function: ast.FunctionDef | None
    classes: tuple[str, ...]


def mutants(file: Path) -> Iterator[Mutant]:
    """All mutants of a module, in their order in the file."""
    tree = ast.parse(file.read_bytes())
    seen: dict[str, int] = {}
    for index, place in enumerate(_places(tree)):
        for what, change in _changes(place.node):
            function = place.function or (place.node if isinstance(place.node, ast.FunctionDef) else None)
            part = f"{file.parent.name}/{file.stem}{'' if function else CONSTANTS}"
            own = (*place.names, function.name) if function and function is place.node else place.names
            name = f"{part} {'.'.join(own) or 'module'}: {what}"
            seen[name] = seen.get(name, 0) + 1
            within = (".".join((*place.classes, function.name)), _first_line(function)) if function else None
            yield Mutant(
                file,
                name if seen[name] == 1 else f"{name} ({seen[name]})",
                getattr(place.node, "lineno", 0),
                within,
                lambda other, index=index, change=change: change(_nth(other, index)),
            )


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])


def _nth(tree: ast.Module, index: int) -> ast.AST:
    return next(place.node for at, place in enumerate(_places(tree)) if at == index)


def _places(node: ast.AST, at: _Place | None = None) -> Iterator[_Place]:
    """Each node that decides something, with its function; no annotations, no texts for readers."""
    at = at or _Place(node, (), None, ())
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "bases", "type_params"} or (
            isinstance(node, ast.ClassDef) and name == "decorator_list"
        ):
            continue
        if name == "slice" and isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in _TYPES:
            continue
        children = cast("list[object]", value) if isinstance(value, list) else [value]
        for child in (one for one in children if isinstance(one, ast.AST)):
            if isinstance(child, ast.keyword) and child.arg in _TEXTS:
                continue
            if isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "__all__":
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            place = _inside(node, name, child, at)
            yield place
            yield from _places(child, place)


def _inside(node: ast.AST, field: str, child: ast.AST, at: _Place) -> _Place:
    if isinstance(node, ast.FunctionDef) and field == "body":
        return _Place(
            child,
            (*at.names, node.name) if at.names[-1:] != (node.name,) else at.names,
            at.function or node,
            at.classes,
        )
    if isinstance(node, ast.ClassDef) and field == "body" and at.function is None:
        names = (*at.classes, node.name)
        return _Place(child, names, None, names)
    if isinstance(node, ast.Assign | ast.AnnAssign) and at.function is None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        return _Place(child, (*at.classes, ast.unparse(target)), None, at.classes)
    return _Place(child, at.names, at.function, at.classes)


_Changes = Iterator[tuple[str, Callable[[ast.AST], None]]]


def _changes(node: ast.AST) -> _Changes:
    for kinds, changes in _OPERATORS:
        if isinstance(node, kinds):
            yield from changes(node)


def _operands(node: ast.BoolOp) -> _Changes:
    for index, value in enumerate(node.values):
        yield f"{_short(node)} without {_short(value)}", lambda other, index=index: _drop(other, "values", index)


def _items(node: ast.Tuple | ast.List | ast.Set) -> _Changes:
    if isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for index, value in enumerate(node.elts):
            yield f"{_short(node)} without {_short(value)}", lambda other, index=index: _drop(other, "elts", index)


def _entries(node: ast.Dict) -> _Changes:
    for index, key in enumerate(node.keys):
        if key:
            yield f"{_short(node)} without {_short(key)}", lambda other, index=index: _drop_key(other, index)


def _branches(node: ast.If | ast.IfExp) -> _Changes:
    if not isinstance(node.test, ast.Compare):
        yield f"if {_short(node.test)}: turned", _turn


def _filters(node: ast.comprehension) -> _Changes:
    for index, test in enumerate(node.ifs):
        what = f"for {_short(node.target)}: without if {_short(test)}"
        yield what, lambda other, index=index: _drop(other, "ifs", index)


def _calls(node: ast.Call) -> _Changes:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLED:
        yield f"{_short(node)}: {_CALLED[node.func.id]}", _recall


def _statements(node: ast.AST) -> _Changes:
    for field in ("body", "orelse"):
        for index, statement in enumerate(getattr(node, field, [])):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield | ast.YieldFrom):
                yield (
                    f"without {_short(statement)}",
                    lambda other, field=field, index=index: _silence(other, field, index),
                )
            elif (
                isinstance(statement, ast.Continue | ast.Return)
                and isinstance(node, ast.If)
                and not getattr(statement, "value", None)
            ):
                yield (
                    f"if {_short(node.test)}: without {_short(statement)}",
                    lambda other, field=field, index=index: _pass(other, field, index),
                )


def _comparisons(node: ast.Compare) -> _Changes:
    for index, operator in enumerate(node.ops):
        turned = _COMPARED[type(operator)]

        def change(other: ast.AST, index: int = index, turned: type[ast.cmpop] = turned) -> None:
            cast("ast.Compare", other).ops[index] = turned()

        yield f"{_short(node)}: {turned.__name__}", change


def _constants(node: ast.Constant) -> _Changes:
    value: object = node.value
    if isinstance(value, bool):
        yield f"{value} turned", lambda other: setattr(other, "value", not value)
    elif isinstance(value, int):
        yield f"{value}: {value + 1}", lambda other: setattr(other, "value", value + 1)


_OPERATORS: Final[tuple[tuple[Any, Callable[[Any], _Changes]], ...]] = (
    (ast.Compare, _comparisons),
    (ast.BoolOp, _operands),
    ((ast.Tuple, ast.List, ast.Set), _items),
    (ast.Dict, _entries),
    (ast.Constant, _constants),
    ((ast.If, ast.IfExp), _branches),
    (ast.comprehension, _filters),
    (ast.Call, _calls),
    ((ast.FunctionDef, ast.If, ast.For, ast.With), _statements),
)
"""What is changed of each kind of node."""


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:55]}…{text[-12:]}"


def _drop(node: ast.AST, field: str, index: int) -> None:
    values: list[ast.AST] = getattr(node, field)
    del values[index]
    if isinstance(node, ast.BoolOp) and len(values) == 1:
        # One operand is that operand: `x and x`.
        values.append(copy.deepcopy(values[0]))


def _drop_key(node: ast.AST, index: int) -> None:
    given = cast("ast.Dict", node)
    del given.keys[index], given.values[index]


def _turn(node: ast.AST) -> None:
    branch = cast("ast.If | ast.IfExp", node)
    branch.test = ast.UnaryOp(ast.Not(), branch.test)


def _recall(node: ast.AST) -> None:
    name = cast("ast.Name", cast("ast.Call", node).func)
    name.id = _CALLED[name.id]


def _silence(node: ast.AST, field: str, index: int) -> None:
    # Still a generator.
    getattr(node, field)[index] = ast.parse("if False:\n    yield").body[0]


def _pass(node: ast.AST, field: str, index: int) -> None:
    getattr(node, field)[index] = ast.Pass()
