"""Transactions in a simulated cluster: half messages, decided by the producer or by its checker.

The decision stands in the journal, as in the database of an application: once, before the broker is
told. A producer that is asked about a transaction which nobody decided, because it was killed in
between, decides to roll it back. So what is decided must come true, however often anybody failed:
committed ones are there as a whole, others are never seen.
"""

from random import Random

from ternmq.client.client import Client
from ternmq.client.transactions.checker import TransactionCheck, Verdict
from ternmq.client.transactions.transaction import Rollback
from ternmq.core.errors import TernError
from tests.simulation.cluster.journal import Journal

IMMUNE_S = 3.0


class Halves:
    """What one life of a producer does with transactions."""

    def __init__(self, mq: Client, journal: Journal, chance: Random) -> None:
        self._mq = mq
        self._journal = journal
        self._chance = chance
        self._mine: set[str] = set()
        """Under way in this life."""
        mq.transaction_checker(self._check)

    def _check(self, check: TransactionCheck) -> Verdict:
        decided = self._journal.decided
        if check.id not in decided and check.id in self._mine:
            return Verdict.UNKNOWN
        return Verdict.COMMIT if decided.setdefault(check.id, False) else Verdict.ROLLBACK

    async def send(self, topic: str) -> None:
        """One transaction of a few messages; raises what failed."""
        journal, transaction = self._journal, self._mq.transaction(first_check=IMMUNE_S)
        self._mine.add(transaction.id)
        bodies = journal.halves[transaction.id] = []
        try:
            async with transaction:
                for _ in range(self._chance.randrange(1, 4)):
                    bodies.append(journal.body(topic, None, self._chance.randrange(200)))
                    await transaction.send(topic, bodies[-1])
                if self._chance.random() < 0.3:
                    journal.decided[transaction.id] = False
                    raise Rollback
                journal.decided[transaction.id] = True
            if journal.decided[transaction.id]:
                journal.committed.add(transaction.id)
        except TernError:
            journal.decided.setdefault(transaction.id, False)
            raise
        finally:
            self._mine.discard(transaction.id)
