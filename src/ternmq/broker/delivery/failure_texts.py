"""The texts of failure notes, read back from the pull log when failed rows are handed out again.

What is in memory is there at once; what is not is read by a thread. A record that was trimmed
meanwhile, or cannot be read, is no error: nothing is known then.
"""

from collections.abc import Iterable

from ternmq.broker.groups.failure_notes import Failed, FailureNote, read_failure
from ternmq.broker.log.fetch import Fetcher
from ternmq.core.errors import TernError
from ternmq.storage.pull.pull_log import PullLog


class FailureTexts:
    """Reads the failure texts that notes point to."""

    def __init__(self, *, pulls: PullLog, fetcher: Fetcher) -> None:
        self._pulls = pulls
        self._fetcher = fetcher

    @staticmethod
    def at_hand(notes: Iterable[FailureNote]) -> bool:
        """Are all texts in memory, as far as they are anywhere?"""
        return all(note.text is not None or note.offset < 0 for note in notes)

    @staticmethod
    def in_memory(notes: Iterable[FailureNote]) -> dict[FailureNote, Failed]:
        """The texts that are in memory."""
        return {
            note: failed
            for note in notes
            if note.text and (failed := read_failure(note.text, note.at_ms)) is not None
        }

    async def read(self, notes: Iterable[FailureNote]) -> dict[FailureNote, Failed]:
        """The texts that can be read."""
        notes = list(notes)
        found = self.in_memory(notes)
        stored = {note: note.offset for note in notes if note.text is None and note.offset >= 0}
        if stored:
            found |= await self._fetcher.run(lambda: self._read(stored))
        return found

    def _read(self, stored: dict[FailureNote, int]) -> dict[FailureNote, Failed]:
        found: dict[FailureNote, Failed] = {}
        for note, offset in stored.items():
            try:
                record = self._pulls.read(offset)
            except TernError:
                continue  # Trimmed, or damaged.
            failed = read_failure(record.text, record.at_ms)
            if failed is not None:
                found[note] = failed
        return found
