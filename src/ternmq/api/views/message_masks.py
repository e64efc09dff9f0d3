"""Masks: what of a message people see only when they ask for it, and may.

A mask is a document of the kind `mask`: a pattern of topics, and a JSON pointer into the body (`*`
is every element), a property, or a regular expression over the text of the body. What it names is
shown as `***` by pages and by calls that look at messages; consuming is not looking. Where a mask
cannot be held against a body (no JSON, no text, too large) all of the body is hidden. Whoever may
read `unmasked:TOPIC` sees everything by asking for it, and each such look is in the log.

Masks are asked for with the console's own user, every few seconds while somebody looks. While it is
not known which there are, all bodies are hidden.
"""

import re
from collections.abc import Mapping
from re import _constants, _parser
from typing import Any

import msgspec

from ternmq.api.caller_rights import CallerRights
from ternmq.client.documents.documents import RegistryDocuments
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, Forbidden, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import REFUSED_PREFIX, RESERVED
from ternmq.security.access.rights import UNMASKED, covers
from ternmq.wire.actions import Action

KIND = "mask"
HIDDEN = "***"
FRESH_S = 2.0
MASKS_MAX = 200
BODY_SIZE_MAX = 1024 * 1024
TEXT_SIZE_MAX = 8 * 1024
"""Of a body that a pattern is held against: the time may grow with its square."""
WAYS_MAX = 64
PATTERN_SIZE_MAX = 200
POINTER_SIZE_MAX = 512

log = get_logger()


class MaskRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mask, as its document says it."""

    topic: str
    pointer: str = ""
    property: str = ""
    pattern: str = ""

    def check(self) -> None:
        """Raises `BadRequest` where it means nothing, or could take for ever."""
        if [bool(self.pointer), bool(self.property), bool(self.pattern)].count(True) != 1:
            raise BadRequest("a mask has a topic, and one of pointer, property and pattern")
        if len(self.pattern) > PATTERN_SIZE_MAX or len(self.pointer) > POINTER_SIZE_MAX:
            raise BadRequest("this mask is too long")
        if self.pointer and not self.pointer.startswith("/"):
            raise BadRequest(f"{self.pointer[:40]!r} is no JSON pointer: it begins with '/'")
        if self.pattern:
            check_pattern(self.pattern)


class ShownContent(msgspec.Struct, frozen=True):
    """The content of a message as one person sees it."""

    body: bytes
    properties: dict[str, Any]
    masked: bool = False


def check_pattern(pattern: str) -> None:
    """A regular expression that cannot take for ever: at most one repeat without a bound, few ways
    for the others, none inside of another, nothing that refers back."""
    try:
        parsed = _parser.parse(pattern)
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRequest(f"{pattern[:60]!r} is no regular expression: {error}") from None
    endless, ways = _repeats(parsed, inside=False)
    if endless > 1 or ways > WAYS_MAX:
        raise BadRequest(
            "a mask's pattern has at most one repeat without a bound, and few others: write "
            r"\w{1,64}@ in place of \w+@"
        )


def _repeats(parsed: Any, *, inside: bool) -> tuple[int, int]:
    """Repeats without a bound, and in how many ways the others can be; raises where one stands
    inside of another."""
    endless, ways = 0, 1
    for operation, argument in parsed:
        if operation in (_constants.GROUPREF, _constants.GROUPREF_EXISTS):
            raise BadRequest("a mask's pattern refers back to nothing")
        if operation in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least, most, part = argument
            if inside:
                raise BadRequest("a mask's pattern has no repeat inside of a repeat")
            _repeats(part, inside=True)
            if most > WAYS_MAX:
                endless += 1
            else:
                ways *= most - least + 1
            continue
        for part in _parts(argument):
            more_endless, more_ways = _repeats(part, inside=inside)
            endless, ways = endless + more_endless, ways * more_ways
    return endless, ways


def _parts(argument: Any) -> list[Any]:
    """The parsed pieces that stand in an operation."""
    if isinstance(argument, _parser.SubPattern):
        return [argument]
    if isinstance(argument, list | tuple):
        return [part for each in argument for part in _parts(each)]
    return []


def masked(rules: list[MaskRule], body: bytes, properties: Mapping[str, Any]) -> ShownContent:
    """A message with what the rules name hidden. Pure."""
    shown = dict(properties)
    for rule in rules:
        if rule.property in shown:
            shown[rule.property] = HIDDEN
    inside = [rule for rule in rules if not rule.property]
    if inside and body:
        body = _masked_body(inside, body)
    return ShownContent(body, shown, masked=bool(rules))


def _masked_body(rules: list[MaskRule], body: bytes) -> bytes:
    if len(body) > BODY_SIZE_MAX:
        return HIDDEN.encode()
    try:
        pointers = [rule.pointer for rule in rules if rule.pointer]
        if pointers:
            value = msgspec.json.decode(body)
            for pointer in pointers:
                value = _hide(value, [_unescaped(each) for each in pointer[1:].split("/")])
            body = msgspec.json.encode(value)
        text = body.decode()
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return HIDDEN.encode()
    patterns = [rule.pattern for rule in rules if rule.pattern]
    if patterns and len(text) > TEXT_SIZE_MAX:
        return HIDDEN.encode()
    for pattern in patterns:
        text = re.sub(pattern, HIDDEN, text)
    return text.encode()


def _unescaped(word: str) -> str:
    return word.replace("~1", "/").replace("~0", "~")


def _hide(value: Any, words: list[str]) -> Any:
    if not words:
        return HIDDEN
    word, rest = words[0], words[1:]
    if isinstance(value, dict):
        return {
            name: _hide(each, rest) if word in ("*", name) else each for name, each in value.items()
        }
    if isinstance(value, list):
        return [
            _hide(each, rest) if word in ("*", str(at)) else each for at, each in enumerate(value)
        ]
    return value


class MessageMasks:
    """The masks of a cluster, held over what is shown."""

    def __init__(self, documents: RegistryDocuments, clock: Clock) -> None:
        """`documents`: as the console's own user, who may read those of the kind `mask`."""
        self._documents = documents
        self._clock = clock
        self._known: dict[str, tuple[int, MaskRule]] = {}
        """By name: the version of the document, and what it says."""
        self._rules: list[MaskRule] | None = None
        self._asked_at = -FRESH_S

    async def view(self, rights: CallerRights, *, unmask: bool = False) -> "MaskedView":
        """Masks as they are now, for one look of one person."""
        now = self._clock.monotonic()
        if self._rules is None or now - self._asked_at >= FRESH_S:
            await self._ask(now)
        return MaskedView(self._rules, rights, unmask=unmask)

    async def _ask(self, now: float) -> None:
        try:
            found = await self._documents.list(KIND, limit=MASKS_MAX)
            kept: dict[str, tuple[int, MaskRule]] = {}
            for each in found:
                known = self._known.get(each.name)
                if known is None or known[0] != each.version:
                    document = await self._documents.get(KIND, each.name)
                    known = (each.version, _rule(each.name, document.body))
                kept[each.name] = known
            self._known, self._rules = kept, [rule for _, rule in kept.values()]
            self._asked_at = now
        except Unavailable:
            pass  # What was known goes on.
        except TernError as error:
            self._rules = None
            log.warning("masks are not known, so all bodies are hidden", reason=error.message)


class MaskedView:
    """What one person sees in one look."""

    def __init__(
        self, rules: list[MaskRule] | None, rights: CallerRights, *, unmask: bool = False
    ) -> None:
        self._rules = rules
        self._rights = rights
        self._unmask = unmask

    def of(self, topic: str, body: bytes, properties: Mapping[str, Any]) -> ShownContent:
        """Raises `Forbidden` for who wants to see all and may not. A letter is masked as a message
        of the topic that it is from."""
        noted = properties.get("%topic")
        if topic.startswith(RESERVED) and isinstance(noted, str):
            topic = noted
        rules = self._over(topic.removeprefix(REFUSED_PREFIX))
        if rules is None:
            notes = {name: each for name, each in properties.items() if name.startswith("%")}
            hidden = dict.fromkeys(properties, HIDDEN)
            return ShownContent(HIDDEN.encode(), hidden | notes, masked=True)
        return masked(rules, body, properties) if rules else ShownContent(body, dict(properties))

    def check_search(self, topic: str, *, text: str, where: str) -> None:
        """Who may not see may not find either: guesses would tell what is hidden."""
        rules = self._over(topic)
        if (text or where) and (rules is None or rules):
            raise Forbidden(
                f"some of the messages of {topic!r} is masked, so they are not searched by text or "
                "properties; who may read unmasked: asks with unmask=1"
            )

    def _over(self, topic: str) -> list[MaskRule] | None:
        """Rules that hide something there; None: not known, so everything."""
        rules = self._rules
        over = None if rules is None else [rule for rule in rules if covers(rule.topic, topic)]
        if over == [] or not self._unmask:
            return over
        self._rights.check([(Action.READ, UNMASKED, topic)])
        user = self._rights.user or "(nobody logs in)"
        log.warning("masks were taken off", user=user, topic=topic)
        return []


def _rule(name: str, body: bytes) -> MaskRule:
    """A mask that cannot be read hides everything everywhere, until it is mended."""
    try:
        rule = msgspec.json.decode(body, type=MaskRule)
        rule.check()
    except (msgspec.MsgspecError, BadRequest) as error:
        log.warning("a mask cannot be read, and hides all bodies", mask=name, reason=str(error))
        return MaskRule(topic="*", pattern="(?s).+")
    return rule
