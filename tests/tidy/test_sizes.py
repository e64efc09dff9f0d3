"""Budgets: what fits on a screen and in a head. Exceptions are named here and only become fewer."""

import ast

from tests.tidy.source import PACKAGE, Function, functions, modules, settled

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 7
FOLDER_DEPTH_MAX = 2

LONG_FILES = {
    "src/ternmq/broker/leader.py",
    "src/ternmq/meta/directory.py",
}
LONG_FUNCTIONS = {
    "src/ternmq/batch/check.py:check_incoming",
    "src/ternmq/broker/leader.py:__init__",
    "src/ternmq/cli/messages/send.py:send",
}
WIDE_FUNCTIONS: set[str] = set()


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


def parameter_count(function: Function) -> int:
    taken = function.args
    names = [argument.arg for argument in taken.posonlyargs + taken.args + taken.kwonlyargs]
    return len([name for name in names if name not in ("self", "cls")])


def is_command(function: Function) -> bool:
    """Its parameters are declared as Typer options."""
    return "typer.Option(" in ast.unparse(function.args)
