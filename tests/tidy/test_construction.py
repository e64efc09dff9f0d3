"""An object is whole when its constructor returns: nobody else fills in what was left out.

Looked for: a function makes an object, or several, and sets attributes of it, at once, on a
condition or later; and attributes that hold a function which does nothing until somebody overwrites
it. A class may finish what it makes itself (`open`). What a loop counts into an object is counting.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.tidy.source import Function, Module, functions, modules, settled

FINISHED_OUTSIDE: set[str] = set()
HOOKS: set[str] = set()
SETS_ATTRIBUTE = re.compile(r"^\s+(?!self\.)\w[\w\[\]., ]*\.\w[^=(]* = ", re.MULTILINE)
"""Most modules have no line like it, and need no second look."""


def test_no_constructor_is_finished_from_outside() -> None:
    shipped = [module for module in modules() if module.shipped]
    classes = frozenset(node.name for module in shipped for node in classes_of(module))
    found = [
        f"{module.name}: {name}" for module in shipped for name in finished_outside(module, classes)
    ]

    assert not settled(found, allowed=FINISHED_OUTSIDE)


def test_no_attribute_is_a_function_for_others_to_overwrite() -> None:
    found = [
        f"{module.name}: {ast.unparse(target)}"
        for module in modules()
        if module.shipped
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Lambda)
        for target in targets_of(node)
        if isinstance(target, ast.Attribute)
    ]

    assert not settled(found, allowed=HOOKS)


def finished_outside(module: Module, classes: frozenset[str]) -> Iterator[str]:
    """`Class.attribute` of what is set in the function that made the object."""
    if not SETS_ATTRIBUTE.search(module.text):
        return
    makers = makers_of(module, classes)
    own = {id(inner): node.name for node in classes_of(module) for inner in ast.walk(node)}
    for _, function in functions(module):
        attributes = [(loops, each) for loops, each in set_in(function) if root_of(each) != "self"]
        made = made_in(function, makers) if attributes else {}
        for loops, target in attributes:
            root = root_of(target)
            if root not in made or made[root].name == own.get(id(target)):
                continue
            if loops == made[root].loops:
                yield f"{made[root].name}.{target.attr}"


@dataclass(frozen=True, slots=True)
class Made:
    """An object that a function makes, for one of its names."""

    name: str
    """Of its class."""
    loops: int
    """How many loops deep. What is set in a loop further down is counting, not making."""


def makers_of(module: Module, classes: frozenset[str]) -> dict[str, str]:
    """Which class a call makes, by what is called: a class, or a function of this module, or one
    that it imports, that returns a new object and nothing else."""
    found = {name: name for name in classes} | factories(module.dotted, classes)
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in by_path():
            there = factories(node.module, classes)
            for name in node.names:
                if name.name in there:
                    found[name.asname or name.name] = there[name.name]
    return found


@cache
def factories(dotted: str, classes: frozenset[str]) -> dict[str, str]:
    """Functions that return a new object of one class."""
    found = {}
    for path, function in functions(by_path()[dotted]):
        if not isinstance(function.body[-1], ast.Return):
            continue
        returns = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        named = any(isinstance(value, ast.Name) for value in returns)
        made = made_in(function, {name: name for name in classes}) if named else {}
        kinds = set()
        for value in returns:
            if isinstance(value, ast.Name) and value.id in made:
                kinds.add(made[value.id].name)
            else:
                kinds.add("" if value is None else called(value))
        if len(kinds) == 1 and kinds <= classes:
            found[path.rpartition(":")[2]] = kinds.pop()
    return found


@cache
def by_path() -> dict[str, Module]:
    return {module.dotted: module for module in modules() if module.shipped}


def made_in(function: Function, makers: dict[str, str]) -> dict[str, Made]:
    """Names that hold a new object and never anything else: what is looked up, and made only where
    there is none, is not new."""
    held: dict[str, list[Made | None]] = {}
    for loops, node in steps_of(function):
        for target, value in assigned(node):
            kind = kind_of(value, makers)
            for name in ast.walk(target):
                if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
                    held.setdefault(name.id, []).append(Made(kind, loops) if kind else None)
    return {name: made[0] for name, made in held.items() if len(made) == 1 and made[0] is not None}


def assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets with what they get; one by one where both are written so."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return
    for target in targets_of(node):
        targets = target.elts if isinstance(target, ast.Tuple) else []
        values = node.value.elts if isinstance(node.value, ast.Tuple) else []
        if targets and len(targets) == len(values):
            yield from zip(targets, values, strict=True)
        else:
            yield target, node.value


def kind_of(value: ast.expr, makers: dict[str, str]) -> str:
    """The class of what an expression makes, one or several of it; else nothing."""
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            kinds = {makers.get(called(part), "") for part in parts}
            return kinds.pop() if len(kinds) == 1 else ""
        case ast.ListComp(elt=part):
            return makers.get(called(part), "")
    return makers.get(called(value), "")


def set_in(function: Function) -> Iterator[tuple[int, ast.Attribute]]:
    """Attributes that are assigned, with the number of loops around them."""
    for loops, node in steps_of(function):
        for target in targets_of(node):
            for part in ast.walk(target):
                if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                    yield loops, part


def steps_of(node: ast.AST, loops: int = 0) -> Iterator[tuple[int, ast.AST]]:
    """Everything in a function, and the number of loops around it."""
    for child in ast.iter_child_nodes(node):
        yield loops, child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            deeper = isinstance(child, ast.For | ast.AsyncFor | ast.While)
            yield from steps_of(child, loops + deeper)


def called(value: ast.expr) -> str:
    """The last name of what an expression calls; else nothing."""
    if isinstance(value, ast.Await):
        value = value.value
    match value:
        case ast.Call(func=ast.Name(id=name)):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name)):
            return name
    return ""


def root_of(target: ast.Attribute) -> str:
    """`made` of `made.x` and of `made[0].x`."""
    value = target.value.value if isinstance(target.value, ast.Subscript) else target.value
    return value.id if isinstance(value, ast.Name) else ""


def targets_of(statement: ast.AST) -> list[ast.expr]:
    match statement:
        case ast.Assign():
            return statement.targets
        case ast.AnnAssign():
            return [statement.target]
    return []


def classes_of(module: Module) -> list[ast.ClassDef]:
    return [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
