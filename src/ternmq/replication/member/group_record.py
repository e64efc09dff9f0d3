"""The last standing of a member's group, on its own disk: what is left when a registry is lost.

A standing is noted before anything is done by it. For a master that is the rule from which members
prove after a loss who has everything (`meta.standings.claims`): nothing is answered without a
member that left the set, and nobody is added to it, before this disk says who the members and the
set are.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ternmq.core.errors import BadConfig, Corrupt, NotMaster
from ternmq.storage.files.member import MemberFile
from ternmq.wire.messages.standings import BrokerGroupKind, Claim, Standing

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Standing)


class BrokerGroupRecord:
    """The record in a member file. Whoever writes waits for the one before."""

    def __init__(self, member: MemberFile) -> None:
        self._member = member
        self._writing = asyncio.Lock()
        self.known = _decoded(member.record)
        """The last standing that is on this disk; None: there never was one."""

    def check(self, home: Path, group: str, kind: BrokerGroupKind) -> None:
        """The data of one group is not brought into another; raises `BadConfig`."""
        known = self.known
        if known is not None and (known.broker_group, known.kind) != (group, kind):
            raise BadConfig(
                f"{home} is the data of a member of broker group {known.broker_group!r} "
                f"({known.kind}), not of {group!r} ({kind}): it needs a directory of its own"
            )

    async def note(self, standing: Standing) -> None:
        """On disk when it returns; what is older, or not decided, is no news."""
        async with self._writing:
            if not standing.claims and self._is_news(standing):
                await _in_thread(self._member.note, _encoder.encode(standing))
                self.known = standing

    async def accept(self, standing: Standing) -> None:
        """Never follow or be an earlier master again, durably; raises `NotMaster`."""
        async with self._writing:
            known = standing if self._is_news(standing) else self.known
            record = b"" if known is None else _encoder.encode(known)
            if not await _in_thread(self._member.accept, standing.epoch, record):
                raise NotMaster(
                    f"epoch {standing.epoch} is over: this member has accepted "
                    f"{self._member.accepted_epoch}"
                )
            self.known = known

    async def note_damaged(self, damaged: bool) -> None:
        """Whether this member's data is known to be damaged; on disk when it returns."""
        async with self._writing:
            await _in_thread(self._member.note_damaged, damaged)

    def claim(self, *, data_epoch: int, ends: list[int], lacks: bool = False) -> Claim | None:
        """What this disk says, for a registry that may know less."""
        if self.known is None:
            return None
        lacks = lacks or (self._member.damaged and has_company(self.known, self._member.id))
        return Claim(
            member=self._member.id,
            held=self.known,
            accepted_epoch=self._member.accepted_epoch,
            data_epoch=data_epoch,
            ends=ends,
            lacks=lacks,
        )

    def is_unknown_to(self, registry: Standing | None) -> bool:
        """The registry knows less than this disk: join it again."""
        known, me = self.known, self._member.id
        if registry is None or registry.member(me) is None:
            return True
        if known is None:
            return False
        if registry.claims:
            return all(each.member != me for each in registry.claims)
        return _order(registry) < _order(known)

    def _is_news(self, standing: Standing) -> bool:
        known = self.known
        return known is None or known.line != standing.line or _order(known) < _order(standing)


def has_company(standing: Standing, me: str) -> bool:
    """Others have everything, so that nothing is lost without this member's data."""
    return standing.in_sync not in ([], [me])


async def _in_thread(work: Callable[..., Any], *arguments: object) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)


def _order(standing: Standing) -> tuple[int, int]:
    return (standing.epoch, standing.version)


def _decoded(record: bytes) -> Standing | None:
    try:
        return _decoder.decode(record) if record else None
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the record of a member file cannot be read: {error}") from error
