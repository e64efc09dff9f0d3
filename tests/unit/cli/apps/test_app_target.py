"""`MODULE:APP` of `tern run`, and what is said where it is wrong."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ternmq
from ternmq.cli.apps.app_target import load_app


@pytest.fixture(autouse=True)
def path_as_before() -> Iterator[None]:
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def test_an_app_is_found_in_a_module_of_the_folder(tmp_path: Path) -> None:
    package = tmp_path / "target_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(
        "import ternmq\nclass services:\n    app = ternmq.App('tern://127.0.0.1:1')\n"
    )

    assert isinstance(load_app("target_shop.main:services.app", tmp_path), ternmq.App)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("target_plain", "MODULE:NAME"),
        (":app", "MODULE:NAME"),
        ("target_plain:", "MODULE:NAME"),
        ("target_nowhere.main:app", "there is no module 'target_nowhere.main'"),
        ("target_plain.inner:app", "there is no module"),
        ("target_plain:other", "has no 'other'"),
        ("target_plain:app", "of type int, not a ternmq.App"),
    ],
)
def test_mistakes_in_the_name_are_said(tmp_path: Path, target: str, text: str) -> None:
    (tmp_path / "target_plain.py").write_text("app = 3\n")

    with pytest.raises(ternmq.BadRequest) as caught:
        load_app(target, tmp_path)

    assert text in caught.value.message


def test_what_the_module_itself_lacks_is_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "target_broken.py").write_text("import no_such_library\n")

    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        load_app("target_broken:app", tmp_path)
    with pytest.raises(ternmq.BadRequest, match="no folder"):
        load_app("target_broken:app", tmp_path / "missing")
