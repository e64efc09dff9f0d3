"""`mq.admin`: questions and orders about topics, groups and servers; the command line uses it.

The calls of each noun stand in a file of their own (`topics.py`, `groups.py` …); `Admin` is all of
them together. Topics belong to meta, everything about groups and stored messages to the brokers:
all broker groups are asked (`FanOut`), and their answers are put together or named by their broker
group. A broker group that does not answer makes a call fail after all others were asked;
`tolerant()` gives an admin that goes on with those that answer, and says in `missing` whose part is
not there. A sequence belongs to one broker group: where there are several, `broker_group` says
which one is meant.
"""

from ternmq.client.admin.access import AccessAdmin
from ternmq.client.admin.dead_letters import SetAsideAdmin
from ternmq.client.admin.delays import Delays
from ternmq.client.admin.groups import GroupAdmin
from ternmq.client.admin.servers import ServerAdmin
from ternmq.client.admin.topics import TopicAdmin
from ternmq.client.admin.transactions import TransactionAdmin
from ternmq.client.documents.documents import RegistryDocuments
from ternmq.client.inspection.figures import FigureAdmin
from ternmq.client.inspection.rows import InspectionAdmin
from ternmq.client.inspection.sessions import SessionAdmin


class Admin(
    TopicAdmin,
    GroupAdmin,
    SetAsideAdmin,
    TransactionAdmin,
    ServerAdmin,
    AccessAdmin,
    InspectionAdmin,
    SessionAdmin,
    FigureAdmin,
):
    """`mq.admin`."""

    def tolerant(self) -> "Admin":
        """All calls, with the answers of those broker groups that answer; see `missing`."""
        return Admin(self._cluster, {})

    @property
    def delays(self) -> Delays:
        """Messages that are not due yet."""
        return Delays(self._cluster)

    @property
    def documents(self) -> RegistryDocuments:
        """Documents of the registry: versioned, replaced only by who knew them."""
        return RegistryDocuments(self._cluster)
