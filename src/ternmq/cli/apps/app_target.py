"""Finds the app that `tern run shop.main:app` names; every mistake is one line that says what to
do."""

import importlib
import sys
from pathlib import Path

from ternmq.client.app.app import App
from ternmq.core.errors import BadRequest

SHAPE = "it is MODULE:NAME, as shop.main:app"


def load_app(target: str, folder: Path) -> App:
    """Import the module, with the folder first on the path, and return its app.

    What the module itself raises is the application's: it is not caught.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise BadRequest(f"the app is {target!r}; {SHAPE}")
    if not folder.is_dir():
        raise BadRequest(f"--app-dir {folder} is no folder")
    sys.path.insert(0, str(folder))
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing != module_name and not module_name.startswith(f"{missing}."):
            raise  # The module is there, and imports one that is not.
        raise BadRequest(
            f"there is no module {module_name!r} in {folder} nor installed: {SHAPE}; "
            "--app-dir says where to look"
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadRequest(f"the module {module_name} has no {name!r}; {SHAPE}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise BadRequest(f"{target} is of type {type(found).__name__}, not a ternmq.App")
    return found
