"""Dead letters sent again as a job: a choice that is frozen first, a canary, a rate, a stop rule.

The places of all chosen letters are written down before the first one goes. Before each step its
letters are written down as under way; a runner that goes on after another one died looks which of
them are still open: those go, the others went. A broker sends each letter once, whoever asks, so
two jobs, two people or a step done again never send one twice; the letters of others are counted
apart. The canary is sent first and watched until it is settled; later the stop rule watches how
many die again.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from ternmq.client.admin.dead_letters import Ranges
from ternmq.client.reading.letters import DeadLetterChoice
from ternmq.core.errors import BadRequest, TopicNotFound, Unavailable
from ternmq.core.range_set import RangeSet
from ternmq.jobs.job_run import JobRun

RATE = 100
STEP_MAX = 200
STEPS_A_SECOND = 2
RANGES_MAX = 8_000
"""Of chosen letters that do not lie side by side; a document has room for so many."""
CANARY_PASS = 0.95
CANARY_WAIT_S = 60
SETTLED_MIN = 20
"""The stop rule judges from so many on."""
TOPICS_MAX = 50
AWAY_S = 1.0
SENT, OTHERS, FAILED = "sent again", "handled by others", "failed"


async def run_resend(run: JobRun) -> str:
    if "ranges" not in run.job.at:
        await _choose(run)
    if run.job.at.get("under_way"):
        await _look_back(run)
    if run.job.total == 0:
        return "no letter was open that fits"
    if "before" not in run.job.at:
        await run.save(at=run.job.at | {"before": await run.patiently(lambda: _settled(run))})
    canary = min(int(run.job.arguments.get("canary", 0)), run.job.total)
    if canary and not run.job.at.get("canary_passed"):
        await _send(run, canary, "canary")
        await _judge_canary(run, canary)
    await _send(run, run.job.total, "sending")
    more = " More are open that fit: order another job." if run.job.at.get("more") else ""
    return _sentence(run) + more


async def _choose(run: JobRun) -> None:
    """Which letters these are, for good."""
    await run.save(phase="choosing")
    given = run.job.arguments
    choice = DeadLetterChoice(
        ids=given.get("ids", ()),
        error=given.get("error", ""),
        topic=given.get("topic", ""),
        since=moment_of(given.get("since")),
        until=moment_of(given.get("until")),
    )
    places: dict[str, RangeSet] = {}
    topics: dict[str, None] = {}
    again, more, pieces = 0, False, 0
    last = ("", -1)
    try:
        async for letter in run.mq.letters(given["group"]).open(choice):
            broker_group, sequence = letter.message.broker_group, letter.message.sequence
            pieces += (broker_group, sequence - 1) != last
            if pieces > RANGES_MAX:
                more = True
                break
            last = broker_group, sequence
            places.setdefault(broker_group, RangeSet()).add(sequence, sequence + 1)
            again += bool(letter.notes.get("%resent"))
            if len(topics) < TOPICS_MAX:
                topics[str(letter.notes.get("%topic", ""))] = None
    except TopicNotFound:
        pass  # The group never had one.
    at: dict[str, Any] = {
        "ranges": {name: list(place) for name, place in places.items()},
        "topics": list(topics),
        "sent_again_before": again,
        "more": more,
    }
    total = sum(place.count for place in places.values())
    await run.save(at=at, total=total, phase="chosen")


async def _look_back(run: JobRun) -> None:
    """A step may have been done by a runner that died: what is not open any more went."""
    broker_group, ranges = run.job.at["under_way"]
    step = _first(ranges, 0, STEP_MAX)
    still = await run.patiently(lambda: _open(run, broker_group))
    left = [each for each in step if each in still]
    at = run.job.at | {"under_way": None, "left_over": [broker_group, _ranges(left)]}
    await run.save(at=at, counts=counted(run.job.counts, {SENT: len(step) - len(left)}))


async def _send(run: JobRun, upto: int, phase: str) -> None:
    """Letters in their order until so many of the job have come to an end."""
    rate = max(1, int(run.job.arguments.get("rate", RATE)))
    size = max(1, min(rate // STEPS_A_SECOND, STEP_MAX))
    while run.job.handled < upto:
        broker_group, sequences, following = _next_step(run, min(size, upto - run.job.handled))
        if not sequences:
            return
        began = run.clock.monotonic()
        await _send_step(run, broker_group, sequences, {"next": following}, phase)
        if phase == "sending":
            await _judge(run)
        await run.rest(max(0.0, len(sequences) / rate - (run.clock.monotonic() - began)))


async def _send_step(
    run: JobRun, broker_group: str, sequences: list[int], place: dict[str, Any], phase: str
) -> None:
    """These letters, those of them that are still open; written down before and after."""
    still = await run.patiently(partial(_open, run, broker_group))
    left = [each for each in sequences if each in still]
    await run.save(
        at=run.job.at | place | {"under_way": [broker_group, _ranges(left)], "left_over": None},
        counts=counted(run.job.counts, {OTHERS: len(sequences) - len(left)}),
        phase=phase,
    )
    found = {SENT: 0, OTHERS: 0, FAILED: 0}
    while left:
        try:
            done = await run.mq.admin.resend_dead_letters(
                run.job.arguments["group"], _ranges(left), broker_group
            )
        except Unavailable:  # Whether they went is not known: look, later.
            await run.rest(AWAY_S)
            still = await run.patiently(partial(_open, run, broker_group))
            found[SENT] += sum(each not in still for each in left)
            left = [each for each in left if each in still]
            continue
        gone, failed = RangeSet(done.gone).count, len(done.failed)
        found = counted(found, {SENT: len(left) - gone - failed, OTHERS: gone, FAILED: failed})
        left = []
    await run.save(at=run.job.at | {"under_way": None}, counts=counted(run.job.counts, found))


def _next_step(run: JobRun, size: int) -> tuple[str, list[int], list[Any]]:
    """The next letters, of one broker group, and where the ones after them begin."""
    at_group, at = run.job.at.get("next", ["", 0])
    left_over = run.job.at.get("left_over")
    if left_over and left_over[1]:  # What a runner that died had not sent of its last step.
        return left_over[0], _first(left_over[1], 0, STEP_MAX), [at_group, at]
    for name in sorted(run.job.at["ranges"]):
        if name >= at_group:
            found = _first(run.job.at["ranges"][name], at if name == at_group else 0, size)
            if found:
                return name, found, [name, found[-1] + 1]
    return "", [], []


def _first(ranges: Iterable[Sequence[int]], at: int, size: int) -> list[int]:
    found: list[int] = []
    for first, end in ranges:
        begin = max(first, at)
        if begin < end:
            found += range(begin, min(end, begin + size - len(found)))
        if len(found) >= size:
            break
    return found


async def _judge_canary(run: JobRun, canary: int) -> None:
    """Wait until the first ones are settled; raises `JobHalted` if too many died or nobody came."""
    sent = run.job.counts.get(SENT, 0)
    waited = int(run.job.arguments.get("canary_wait_s", CANARY_WAIT_S))
    until = run.clock.monotonic() + waited
    while True:
        acked, dead = await _since(run)
        if acked + dead >= sent:
            break
        if run.clock.monotonic() >= until:
            raise JobHalted(
                f"the canary is not settled after {waited} s: {acked} of {sent} acked, {dead} died "
                "again. Does anybody consume?"
            )
        await run.save(phase=f"canary: {acked} acked, {dead} died again, of {sent}")
        await run.rest(0.5)
    if sent and acked < CANARY_PASS * sent:
        raise JobHalted(f"the canary failed: {dead} of {sent} died again")
    await run.save(at=run.job.at | {"canary_passed": True}, phase="sending")


async def _judge(run: JobRun) -> None:
    percent = int(run.job.arguments.get("stop_percent", 0))
    if not percent:
        return
    acked, dead = await _since(run)
    if acked + dead >= SETTLED_MIN and dead * 100 > percent * (acked + dead):
        raise JobHalted(
            f"stopped by its rule: {dead} of {acked + dead} that were settled died again"
        )


class JobHalted(Exception):
    """A job ends before its end because of what came of its first steps."""


async def _since(run: JobRun) -> tuple[int, int]:
    now, before = await _settled(run), run.job.at["before"]
    return max(0, now[0] - before[0]), max(0, now[1] - before[1])


async def _settled(run: JobRun) -> list[int]:
    """Acked and dead in the private lanes of the group, where letters go."""
    lines = await run.mq.admin.ledger(group=run.job.arguments["group"])
    private = [line for line in lines if line.lane == "private"]
    return [sum(line.acked for line in private), sum(line.dead for line in private)]


async def _open(run: JobRun, broker_group: str) -> RangeSet:
    group = run.job.arguments["group"]
    return RangeSet(await run.mq.admin.open_dead_letters(group, broker_group))


def _ranges(sequences: Iterable[int]) -> Ranges:
    return list(RangeSet((each, each + 1) for each in sequences))


def counted(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    found = dict(counts)
    for name, count in more.items():
        if count:
            found[name] = found.get(name, 0) + count
    return found


def _sentence(run: JobRun) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in run.job.counts.items()) or "nothing"


def moment_of(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text[:40]!r} is not a time; write 2026-01-31T12:00:00Z") from None
    if at.tzinfo is None:
        raise BadRequest(f"{text[:40]!r} has no zone; write 2026-01-31T12:00:00Z")
    return at
