"""What the tidy tests look at: every Python file of the repository, parsed once.

`settled` compares what broke a rule with the names that are allowed to. The lists of allowed names
only ever shrink: a name that no longer needs its exception fails the test too.
"""

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ternmq"
PYTHON_FOLDERS = ("src", "tests", "benchmarks", "examples", "scripts")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One Python file."""

    name: str
    """Its path from the root of the repository."""
    path: Path
    text: str
    tree: ast.Module

    @property
    def shipped(self) -> bool:
        return self.path.is_relative_to(PACKAGE)

    @property
    def dotted(self) -> str:
        """As imports name it; of a module in `src`."""
        parts = self.path.relative_to(PACKAGE.parent).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")


@cache
def modules() -> tuple[Module, ...]:
    found = []
    for folder in PYTHON_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(ROOT).as_posix()
            found.append(Module(name=name, path=path, text=text, tree=ast.parse(text, name)))
    return tuple(found)


def functions(module: Module) -> Iterator[tuple[str, Function]]:
    """Every function with the name that exceptions use, `path:function`."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            yield f"{module.name}:{node.name}", node


def settled(broken: Collection[str], *, allowed: Collection[str]) -> list[str]:
    """What is wrong: rule breakers that are not allowed, and exceptions nobody needs."""
    wrong = sorted(set(broken) - set(allowed))
    stale = sorted(set(allowed) - set(broken))
    return wrong + [f"{name} no longer needs its exception: remove it" for name in stale]
