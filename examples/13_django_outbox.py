"""Django: an order and its message in one `transaction.atomic()`.

    python examples/13_django_outbox.py

Shows: `DjangoOutbox`, its migration operation, a rolled-back block. A project has all of this in
settings, models, migrations and views; here it is one file with a database of its own.
"""

import os
import tempfile

import django
from django.conf import settings

folder = tempfile.TemporaryDirectory()
database = {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder.name}/shop.db"}
settings.configure(DATABASES={"default": database}, INSTALLED_APPS=[], USE_TZ=True)
django.setup()

from django.db import connection, models, transaction  # noqa: E402
from django.db.migrations.state import ProjectState  # noqa: E402

import ternmq  # noqa: E402
from ternmq.outbox.django import DjangoOutbox, create_outbox  # noqa: E402

URL = os.environ.get("TERN_URL", "tern://127.0.0.1:7700")
TOPIC = "example.django"


class Order(models.Model):
    amount = models.IntegerField()

    class Meta:
        app_label = "shop"


with connection.schema_editor() as editor:  # `manage.py migrate` does this.
    editor.create_model(Order)
    create_outbox().database_forwards("shop", editor, ProjectState(), ProjectState())

with ternmq.sync.connect(URL, app="shop") as mq:
    outbox = DjangoOutbox(mq)
    for amount in (10, 0, 30):
        try:
            with transaction.atomic():
                order = Order.objects.create(amount=amount)
                outbox.send(TOPIC, b"%d" % amount, key=f"o-{order.pk}")
                if amount <= 0:
                    raise ValueError("nothing to pay")
        except ValueError as error:
            print(f"failed  {error}")
    outbox.flush()
    print(f"orders  {sorted(Order.objects.values_list('amount', flat=True))}")
    print(f"stored  {sorted(int(message.body) for message in mq.read(TOPIC, start='earliest'))}")
    mq.admin.delete_topic(TOPIC)
connection.close()
folder.cleanup()
