"""The serializer "tern-msgpack": MessagePack by msgspec, quicker than JSON and safe.

kombu finds it by its entry point, in every process that uses Celery; finding it makes `tern://`
known there, so an application has nothing of ours to import.
"""

import msgspec

from ternmq.kombu.aliases import register

SERIALIZER = (msgspec.msgpack.encode, msgspec.msgpack.decode, "application/x-msgpack", "binary")

register()
