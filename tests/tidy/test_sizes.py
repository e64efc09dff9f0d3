"""Budgets: what fits on a screen and in a head. Exceptions are named here and only become fewer."""

import ast
from collections import Counter

from tests.tidy.source import PACKAGE, Function, functions, modules, settled

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7
FOLDER_DEPTH_MAX = 2
FOLDER_MODULES_MAX = 15

LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
WIDE_FUNCTIONS: set[str] = set()
CROWDED_FOLDERS: set[str] = set()
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
