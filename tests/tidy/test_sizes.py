"""Budgets: what fits on a screen and in a head. Exceptions are named here and only become fewer."""

import ast
from collections import Counter

from tests.tidy.source import PACKAGE, Function, functions, modules, settled

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7
FOLDER_DEPTH_MAX = 2
FOLDER_MODULES_MAX = 15
ATTRIBUTES_MAX = 29
"""Beyond, the objects of a class share no keys: every look at an attribute, and above all every
call of a method, takes the slow way (12 % of consuming, once)."""

LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
WIDE_FUNCTIONS: set[str] = set()
CROWDED_FOLDERS: set[str] = set()
WIDE_OBJECTS = {
    "BrokerParts",  # Only puts parts together: nothing is called on it later.
    "Http2Core",  # To be made smaller.
}
FORMATTED_BY_HAND: set[str] = set()
"""Files with tables of numbers, which the formatter would tear apart. No other budget is met by
switching the formatter off."""

FORMATTER_OFF = "# fmt" + ":"


def test_a_file_can_be_read_in_one_sitting() -> None:
    long = [module.name for module in modules() if module.text.count("\n") > FILE_LINES_MAX]

    assert not settled(long, allowed=LONG_FILES)


def test_a_function_fits_on_one_screen() -> None:
    long = [
        name
        for module in modules()
        for name, function in functions(module)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
    ]

    assert not settled(long, allowed=LONG_FUNCTIONS)


def test_a_function_takes_few_parameters() -> None:
    """A command of the command line is left out: its parameters are the flags people type."""
    wide = [
        name
        for module in modules()
        for name, function in functions(module)
        if parameter_count(function) > PARAMETERS_MAX and not is_command(function)
    ]

    assert not settled(wide, allowed=WIDE_FUNCTIONS)


def test_folders_are_shallow() -> None:
    deep = [
        module.name
        for module in modules()
        if module.shipped and len(module.path.relative_to(PACKAGE).parent.parts) > FOLDER_DEPTH_MAX
    ]

    assert not deep


def test_a_folder_is_listed_at_a_glance() -> None:
    sizes = Counter(
        module.path.parent.relative_to(PACKAGE).as_posix()
        for module in modules()
        if module.shipped and module.path.stem != "__init__"
    )
    crowded = [folder for folder, size in sizes.items() if size > FOLDER_MODULES_MAX]

    assert not settled(crowded, allowed=CROWDED_FOLDERS)


def test_an_object_has_few_attributes_or_slots() -> None:
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for module in modules():
        for node in ast.walk(module.tree) if module.shipped else ():
            if isinstance(node, ast.ClassDef):
                own[node.name] = attributes_of(node)
                bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]

    def whole(name: str) -> set[str]:
        return own.get(name, set()).union(*(whole(base) for base in bases.get(name, [])))

    wide = [name for name in own if len(whole(name)) > ATTRIBUTES_MAX]

    assert not settled(wide, allowed=WIDE_OBJECTS)


def test_the_formatter_formats_everything() -> None:
    by_hand = [module.name for module in modules() if FORMATTER_OFF in module.text]

    assert not settled(by_hand, allowed=FORMATTED_BY_HAND)


def parameter_count(function: Function) -> int:
    taken = function.args
    names = [argument.arg for argument in taken.posonlyargs + taken.args + taken.kwonlyargs]
    return len([name for name in names if name not in ("self", "cls")])


def is_command(function: Function) -> bool:
    """Its parameters are declared as Typer's options or arguments."""
    declared = ast.unparse(function.args)
    return "typer.Option(" in declared or "typer.Argument(" in declared


def attributes_of(node: ast.ClassDef) -> set[str]:
    """What is set on `self` anywhere in a class, less what has a slot."""
    found: set[str] = set()
    slots: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            if isinstance(each.value, ast.Name) and each.value.id == "self":
                found.add(each.attr)
        elif isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__slots__":
            slots |= {str(at.value) for at in ast.walk(each) if isinstance(at, ast.Constant)}
    return found - slots
