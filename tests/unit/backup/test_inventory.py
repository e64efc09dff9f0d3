"""Which files belong into a backup, and which of them are measured first."""

from pathlib import PurePosixPath

from ternmq.backup.inventory import belongs, is_log, measured_after


def test_locks_unfinished_files_and_what_was_put_aside_stay_behind() -> None:
    left_out = [
        "lock",
        "node-secret",
        "group-1-a/node-secret",
        "admin-password",
        "meta/admin-password",
        "meta/token-key",
        "broker/checkpoint.tmp",
        "broker.aside-20261115-215800/message/00000000000000000000.log",
        "broker/quarantine/00000000000000000000.report",
        "meta/registry.db-wal",
        "meta/registry.db-shm",
        "backup.tmp/broker/checkpoint",
    ]
    taken = [
        "broker/message/00000000000000000000.log",
        "broker/consume/00000000000000000000.table",
        "delay/schedule/00001794812400000.log",
        "meta/registry.db",
        "broker/member",
        "standings-seen",
    ]

    assert not [path for path in left_out if belongs(PurePosixPath(path))]
    assert [path for path in taken if belongs(PurePosixPath(path))] == taken


def test_what_speaks_of_other_bytes_is_measured_before_them() -> None:
    """So nothing in a backup names what is not in it."""
    order = [
        "broker/checkpoint",
        "broker/pull/00000000000000000000.log",
        "delay/dispatch/00001794812400000.log",
        "delay/schedule/00001794812400000.log",
        "delay/decisions/00000000000000000000.log",
        "delay/wal/00000000000000000000.log",
        "broker/message/00000000000000000000.log",
        "meta/registry.db",
    ]

    ranks = [measured_after(PurePosixPath(path)) for path in order]
    assert ranks == sorted(set(ranks))


def test_only_files_that_grow_are_logs() -> None:
    assert is_log(PurePosixPath("broker/pull/00000000000000000000.log"))
    assert not is_log(PurePosixPath("broker/consume/00000000000000000000.table"))
    assert not is_log(PurePosixPath("server.log"))
