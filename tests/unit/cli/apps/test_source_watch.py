"""Changes of source files, as `tern run --reload` sees them."""

import os
from pathlib import Path

from ternmq.cli.apps.source_watch import changed, look


def test_new_changed_and_removed_files_are_named_and_others_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / ".venv").mkdir()
    kept, edited, removed = (tmp_path / "shop" / f"{name}.py" for name in ("a", "b", "c"))
    for path in (kept, edited, removed, tmp_path / "notes.txt", tmp_path / ".venv" / "x.py"):
        path.write_text("1")
    before = look(tmp_path)

    assert changed(before, look(tmp_path)) == []
    os.utime(edited, ns=(1, 1))
    removed.unlink()
    new = tmp_path / "new.py"
    new.write_text("2")
    (tmp_path / ".venv" / "x.py").write_text("22")
    (tmp_path / "notes.txt").write_text("22")

    assert changed(before, look(tmp_path)) == sorted(map(str, (edited, removed, new)))
