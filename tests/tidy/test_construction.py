"""An object is whole when its constructor returns: nobody else fills in what was left out.

Looked for: an object is made, and the statements right after it set its attributes, at once or on a
condition; and attributes that hold a function which does nothing until somebody overwrites it. A
class may finish what it makes itself (`open`, `halves`).
"""

import ast
from collections.abc import Iterator

from tests.tidy.source import Module, modules, settled

FINISHED_OUTSIDE: set[str] = set()
HOOKS: set[str] = set()


def test_no_constructor_is_finished_from_outside() -> None:
    shipped = [module for module in modules() if module.shipped]
    classes = {node.name for module in shipped for node in classes_of(module)}
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


def finished_outside(module: Module, classes: set[str]) -> Iterator[str]:
    """`Class.attribute` of what is set right after the object was made."""
    own = {id(inner): node.name for node in classes_of(module) for inner in ast.walk(node)}
    for block in blocks_of(module.tree):
        for at, statement in enumerate(block):
            name = made_by(statement)
            if name not in classes or name == own.get(id(statement)):
                continue
            made = {ast.unparse(target) for target in targets_of(statement)}
            for attribute in set_after(block[at + 1 :], made):
                yield f"{name}.{attribute}"


def set_after(statements: list[ast.stmt], made: set[str]) -> Iterator[str]:
    """Attributes of the object that the assignments right after it set; the last of these steps may
    be a condition."""
    for statement in statements:
        if not isinstance(statement, ast.Assign | ast.If):
            return
        for step in ast.walk(statement):
            for target in targets_of(step):
                for part in ast.walk(target):
                    if isinstance(part, ast.Attribute) and ast.unparse(part.value) in made:
                        yield part.attr
        if isinstance(statement, ast.If):
            return


def made_by(statement: ast.stmt) -> str:
    """The class whose constructor this statement calls; else nothing."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return ""
    call = statement.value
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
        return call.func.id
    return ""


def targets_of(statement: ast.AST) -> list[ast.expr]:
    match statement:
        case ast.Assign():
            return statement.targets
        case ast.AnnAssign():
            return [statement.target]
    return []


def blocks_of(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def classes_of(module: Module) -> list[ast.ClassDef]:
    return [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
