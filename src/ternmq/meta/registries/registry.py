"""The permanent record of names, ids and epochs: the interface that every backend implements.

A registry is synchronous and may block; `RegistryWorker` calls it from one thread. Every method is
one transaction, durable when it returns.

Rules
-----
1. Topic and group ids are never reused; a name deleted and made again gets a new id. What a
   broker's data uses counts as given out, also by a registry that was lost (`reserve`). No other
   registry gives out the same ones (`leap`, `meta.id_allocation`).
2. Epochs of a broker group only grow, over restarts too.
3. Making what is there already is no error; it returns what is there. So several meta servers may
   share one registry, and a transaction whose answer was lost may be repeated.
4. A standing is only replaced by a request that knew it: compare-and-set on its version. So is a
   document, if the request says which version it knew. Versions of documents are never reused.
5. Every change of topics, servers and standings is in the news, in the order of the transactions,
   so that a meta server that looks at `news` again and again knows what the others did.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ternmq.core.errors import Conflict, OverLimit, VersionMismatch
from ternmq.discovery.directory import InUse
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import BrokerGroupKind, Standing
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.registry.documents import (
    DOCUMENTS_MAX,
    DOCUMENTS_SIZE_MAX,
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
)

SCHEMA_VERSION = 1
NEWS_KEPT = 10_000
"""Who is further behind is told everything."""

Change = Callable[[TopicSettings], TopicSettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    settings: TopicSettings
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGroup:
    topic_id: int
    name: str
    created_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A live group as the registry knows it: its id, and whose it is."""

    id: int
    topic_id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """How far a registry is older than a broker's data; all empty when it is not."""

    topic_ids: frozenset[int] = frozenset()
    """In use, and no row says what they were."""
    group_ids: bool = False
    epoch: bool = False

    def __bool__(self) -> bool:
        return bool(self.topic_ids) or self.group_ids or self.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What changed in a registry since a version."""

    version: int
    """Ask for news since this one next time."""
    topics: list[Topic]
    """New or changed."""
    deleted: frozenset[int] = frozenset()
    """Topic ids."""
    servers: bool = False
    """Look at `servers` again."""
    everything: bool = False
    """It was too long ago, or in another copy: `topics` are all that live, `deleted` all that ever
    were; so with `standings`."""
    standings: list[Standing] = field(default_factory=list)
    """All of them when one changed: they are few."""


def check_names(used: InUse, held: Mapping[int, str], registry: str) -> None:
    """Numbers that data and registry both know mean the same topics; raises `Conflict`."""
    for topic_id, name in used.names.items():
        here = held.get(topic_id, name)
        if here != name:
            raise Conflict(
                f"topic number {topic_id} is {name!r} in the data of {used.broker_group!r} and "
                f"{here!r} in the registry ({registry}): they are not of one cluster. Name the "
                "meta servers of its own cluster in --url, or restore the right registry"
            )


def check_known(wanted: DocumentPut | DocumentDelete, version: int) -> None:
    """Whoever changes a document knew it as it is (0: it is not there); or did not ask for that."""
    if wanted.version is not None and wanted.version != version:
        now = f"has version {version}" if version else "is not there"
        raise VersionMismatch(
            f"document {wanted.kind}/{wanted.name} {now}, not version {wanted.version}: somebody "
            "else changed it; read it again and decide anew",
            version=version,
        )


def full(count: int) -> bool:
    """Are there as many documents as there may be?"""
    return count >= DOCUMENTS_MAX


def check_room(wanted: DocumentPut, count: int, size: int, held_size: int | None) -> None:
    """Is there room for it among so many of so many bytes? `held_size`: of what it replaces."""
    if held_size is None and full(count):
        raise OverLimit(f"there are {count} documents already; delete some: tern document list")
    if size + len(wanted.body) - (held_size or 0) > DOCUMENTS_SIZE_MAX:
        raise OverLimit(
            f"all documents together may have {DOCUMENTS_SIZE_MAX} bytes; delete some: "
            "tern document list"
        )


class Registry(Protocol):
    """Names and numbers that outlive every process."""

    @property
    def description(self) -> str:
        """Where it is, for people."""

    @property
    def cluster(self) -> str:
        """Which cluster this is: a number drawn once, so that an archive knows whose it is."""

    def topics(self) -> list[Topic]:
        """All live topics, by id."""

    def groups(self) -> list[GroupRow]:
        """All live groups of live topics, by id."""

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        """Make these or find them, in this order, in one transaction."""

    def update_topic(self, name: str, change: Change) -> Topic:
        """Replace a topic's settings by what `change` makes of them; raises `TopicNotFound`."""

    def delete_topic(self, name: str, *, deleted_at_ms: int) -> Topic:
        """Delete a topic and its groups; raises `TopicNotFound`."""

    def create_groups(self, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
        """Make these or find them, in this order; None where the topic is not there any more."""

    def delete_group(self, topic_id: int, name: str, *, deleted_at_ms: int) -> bool:
        """Delete a group; False if there is none."""

    def new_epoch(self, broker_group: str) -> int:
        """A number larger than every one given out for this broker group before."""

    def last_epoch(self, broker_group: str) -> int:
        """The one given out last, or 0."""

    def standing(self, broker_group: str, kind: BrokerGroupKind) -> Standing | None:
        """How a broker group stands now."""

    def standings(self) -> list[Standing]:
        """All of them, by kind and name."""

    def put_standing(self, new: Standing, expected_version: int) -> bool:
        """Replace a standing if its version is still that one (0: there is none) by `new`, whose
        version is higher. False: it is not, and nothing changed. `Unavailable`: the
        outcome is unknown, now and until a higher version was seen."""

    def servers(self) -> list[Route]:
        """Servers that exist, whether they run or not: those that hold messages by themselves."""

    def remember_server(self, route: Route, *, now_ms: int) -> None:
        """Keep it, or its new address."""

    def forget_server(self, route: Route) -> None:
        """A server is gone for good; an unknown one is no error."""

    def hold(self, silent_s: Mapping[str, float]) -> None:
        """Exactly these servers are heard by the meta server whose registry this is; each was so
        many seconds ago."""

    def show_clients(self, clients: Mapping[str, bytes]) -> None:
        """Exactly these are connected to the meta server whose registry this is, with what is said
        of each; for people who look there. A registry that shows nobody does nothing."""

    def held(self) -> dict[str, float | None]:
        """Servers that other meta servers hear, and for how many seconds each has been silent
        towards all of them; None: the registry only knows that somebody hears it."""

    def version(self) -> int:
        """Grows with every change, of any meta server."""

    def news(self, since: int) -> News:
        """What others and we changed after that version."""

    def watch(self, wake: Callable[[], None]) -> bool:
        """Call `wake`, from any thread, when there is news. False: cannot, so ask now and then."""

    def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        """Which of these were deleted; of others it is not known, or they live."""

    def reserve(self, used: InUse, *, now_ms: int) -> Behind:
        """Never give out what is in use; says what was unknown so far. Raises `Conflict`, and
        nothing changes, where a number is that of another topic here (`check_names`)."""

    def leap(self, after: Callable[[int], int]) -> None:
        """Numbers of topics and groups go on after what this makes of the last ones."""

    def document(self, wanted: DocumentNamed, *, now_ms: int) -> Document | None:
        """One document, unless it has expired."""

    def documents(self, wanted: DocumentQuery, *, now_ms: int) -> list[Document]:
        """Documents that have not expired, by kind and name; one more than wanted if there is."""

    def put_document(self, wanted: DocumentPut, *, now_ms: int) -> Document:
        """Make or replace one; raises `VersionMismatch` (rule 4), `OverLimit`. The same request
        once more is answered with what it did."""

    def delete_document(self, wanted: DocumentDelete, *, now_ms: int) -> Document | None:
        """The document as it was; None if there was none; raises `VersionMismatch`."""

    def close(self) -> None:
        """Let go of files and connections."""
