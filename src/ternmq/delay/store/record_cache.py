"""A cache of checked records of schedule logs: those that dispatching read last.

A record has many rows, and they go out one tick after the other. Any thread.
"""

import threading
from collections import OrderedDict

from ternmq.batch.layout import check_whole
from ternmq.batch.view import BatchView
from ternmq.core.units import MIB
from ternmq.delay.store.hour_files import HourFiles

SIZE_MAX = 64 * MIB


class RecordCache:
    """Records by hour and offset."""

    def __init__(self, files: HourFiles) -> None:
        self._files = files
        self._records: OrderedDict[tuple[int, int], BatchView] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, hour: int, offset: int, size: int) -> BatchView:
        """One record; may wait for the disk. Raises `Corrupt`."""
        key = (hour, offset)
        with self._lock:
            view = self._records.get(key)
            if view is not None:
                self._records.move_to_end(key)
                return view
        data = self._files.read(hour, offset, size)
        check_whole(data, at_offset=offset)
        view = BatchView(data)
        with self._lock:
            if key not in self._records:
                self._records[key] = view
                self._size += size
                while self._size > SIZE_MAX and len(self._records) > 1:
                    _, old = self._records.popitem(last=False)
                    self._size -= old.size
        return view

    def forget(self, hours: list[int]) -> None:
        gone = set(hours)
        with self._lock:
            for key in [key for key in self._records if key[0] in gone]:
                self._size -= self._records.pop(key).size
