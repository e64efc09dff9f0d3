"""How many messages for later a user has, by when they are due."""

import pytest

from ternmq.core.errors import OverLimit
from ternmq.security.access.delayed_rows import BUCKET_MS, DelayedRows
from ternmq.security.access.quota import UserUse
from ternmq.wire.messages.limits import Quota

NOW = 1_700_000_000_000


def test_what_is_due_counts_no_more() -> None:
    rows = DelayedRows()
    rows.add([NOW + 1, NOW + 2, NOW + 60_000])

    rows.pass_to(NOW)
    assert rows.there == 3
    rows.pass_to(NOW + 1 + BUCKET_MS)
    assert rows.there == 1
    rows.pass_to(NOW + 90_000)
    assert (rows.there, rows._rows, rows._times) == (0, {}, [])


def test_a_user_has_no_more_messages_for_later_than_its_quota() -> None:
    use = UserUse("shop", Quota(delayed_max=3), lambda: 0.0)
    use.delay([NOW + 60_000] * 2, NOW)
    with pytest.raises(OverLimit, match=r"2 of its 3 messages for later.*--delayed N"):
        use.delay([NOW + 60_000] * 2, NOW)
    use.delay([NOW + 3_600_000], NOW)
    with pytest.raises(OverLimit):
        use.delay([NOW], NOW)

    use.delay([NOW + 999_999], NOW + 60_000 + BUCKET_MS)

    assert use.delayed is not None
    assert use.delayed.there == 2


def test_without_the_quota_nothing_is_counted() -> None:
    use = UserUse("shop", Quota(), lambda: 0.0)
    use.delay([NOW] * 1_000, NOW)

    assert use.delayed is None
