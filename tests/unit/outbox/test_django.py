"""`DjangoOutbox`: Django's transaction decides (Q9). In its own process: Django has globals."""

import subprocess
import sys
from pathlib import Path

from tests.tidy.source import ROOT

PROGRAM = """
import sys, django
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}},
    INSTALLED_APPS=[], USE_TZ=True,
)
django.setup()
from django.db import connection, migrations, transaction
from django.db.migrations.state import ProjectState
from ternmq.outbox.django import DjangoOutbox, create_outbox
from tests.unit.outbox.fake_client import FakeMq

state = ProjectState()
operation = create_outbox("messages_out")
with connection.schema_editor() as editor:
    operation.database_forwards("shop", editor, state, state)
mq = FakeMq()
outbox = DjangoOutbox(mq, table="messages_out")

with transaction.atomic():
    outbox.send("t", b"kept", key="o-1")
    assert mq.bodies == []
try:
    with transaction.atomic():
        outbox.send("t", b"gone")
        raise KeyError
except KeyError:
    pass
with transaction.atomic():
    outbox.send("t", b"outer")
    try:
        with transaction.atomic():
            outbox.send("t", b"inner, gone")
            raise KeyError
    except KeyError:
        pass
outbox.flush()
later = outbox.send("t", b"later", delay=3600)
try:
    with transaction.atomic():
        print(outbox.cancel(later))
        raise KeyError
except KeyError:
    pass
print(outbox.cancel(later), outbox.cancel(later))
outbox.send("t", b"alone")  # No transaction: committed by itself.
outbox.flush()
with connection.cursor() as cursor:
    cursor.execute("SELECT COUNT(*) FROM messages_out")
    print(mq.bodies, cursor.fetchone()[0])
connection.close()
with connection.schema_editor() as editor:
    operation.database_backwards("shop", editor, state, state)
    print("messages_out" in connection.introspection.table_names())
"""


def test_messages_follow_django_s_transactions(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "app.db")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )

    assert done.stdout.splitlines() == [
        "cancelled",
        "cancelled unknown",
        "[b'kept', b'outer', b'alone'] 0",
        "False",
    ], done.stderr
