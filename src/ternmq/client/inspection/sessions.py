"""Who is connected: `mq.admin.sessions`, `senders`, `disconnect`.

All broker groups are asked. A client has a connection to each of them, so it is listed once for
each; its session is the same everywhere.
"""

from ternmq.client.model.arguments import typed_calls
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.client.transport.fan_out import named
from ternmq.wire.inspection.sessions import (
    Disconnect,
    Disconnected,
    SenderCount,
    SenderCounts,
    SenderFind,
    SessionFind,
    SessionInfo,
    Sessions,
)
from ternmq.wire.numbers import Command

PAGE = 1_000


@typed_calls
class SessionAdmin(AdminCalls):
    """Calls about connections."""

    async def sessions(self, app: str = "", limit: int = 10_000) -> list[SessionInfo]:
        """Connections to the brokers, at most so many of each: application, host, process,
        version, role, what they consume."""
        found: list[SessionInfo] = []
        for name in await self._fan_out.groups():
            after, left = 0, limit
            while left > 0:
                wanted = SessionFind(app=app, after=after, limit=min(PAGE, left))
                answers = await self._fan_out.ask(Command.SESSIONS, wanted, Sessions, [name])
                page = answers.get(name, Sessions(sessions=[], total=0))
                found += [named(name, each) for each in page.sessions]
                after, left = page.following, left - len(page.sessions)
                if not after:
                    break
        return found

    async def senders(self, topic: str = "") -> list[SenderCount]:
        """What each application has sent to each topic (or to one) since its broker started; ask
        twice for a rate. At most 1,000 pairs are counted apart, the others under an empty name."""
        wanted = SenderFind(topic=topic)
        answers = await self._fan_out.ask(Command.SENDERS, wanted, SenderCounts)
        return [named(name, each) for name, answer in answers.items() for each in answer.senders]

    async def disconnect(self, session: str, reason: str = "") -> int:
        """Hang up on a client, by its session (or the first letters of it), on all brokers. It is
        told why and may come back. Returns how many connections that were."""
        wanted = Disconnect(session=session, reason=reason)
        answers = await self._fan_out.ask(Command.DISCONNECT, wanted, Disconnected)
        return sum(answer.connections for answer in answers.values())
