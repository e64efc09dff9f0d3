"""Every metric there is: name, kind, labels, what it says. docs/metrics.md has the same table.

Names follow Prometheus: base units (seconds, bytes), `_total` on what only grows. What may go back
(a reset moves a group, retention removes messages) is a gauge. Words are those of the glossary.
"""

from typing import Literal, NamedTuple

FigureKind = Literal["counter", "gauge", "histogram"]

TOPICS_MAX = 1_000
"""Topics that have series of their own; those made later are added up as OTHER."""
LANES_MAX = 1_000
"""Groups on topics, and their private lanes, that have series of their own."""
TIMED_LANES_MAX = 200
"""Those of them whose histograms have series of their own."""
SERVERS_MAX = 1_000
"""Servers whose heartbeats have series of their own; the others have none."""
OTHER = "%other"

LEDGER_STATES = (
    "ready",
    "in_flight",
    "waiting_retry",
    "acked",
    "filtered",
    "skipped",
    "dead",
    "expired",
)
LANE = ("topic", "group", "lane")


class Metric(NamedTuple):
    """One row of the table."""

    name: str
    kind: FigureKind
    labels: tuple[str, ...]
    text: str


METRICS: tuple[Metric, ...] = (
    # The process.
    Metric("tern_node_info", "gauge", ("version", "node"), "Always 1: which software runs here."),
    Metric(
        "tern_node_insecure",
        "gauge",
        (),
        "1 if other machines may reach it and everybody is let in (`insecure = true`).",
    ),
    Metric(
        "tern_tls_certificate_expires_at_seconds",
        "gauge",
        (),
        "Unix time at which the certificate that is served expires; nothing without TLS.",
    ),
    Metric("tern_tls_swaps_total", "counter", (), "How often new TLS files were taken into use."),
    Metric(
        "tern_tls_files_refused",
        "gauge",
        (),
        "1 while new TLS files are of no use, so that the old ones are used; the log says why.",
    ),
    Metric("tern_loop_lag_seconds", "histogram", (), "How late the event loop comes to a timer."),
    # Every server of the process.
    Metric("tern_server_healthy", "gauge", ("role",), "1 if it takes messages, 0 if it cannot."),
    Metric("tern_server_connections", "gauge", ("role",), "Connections that are open."),
    Metric(
        "tern_server_refused_connections_total",
        "counter",
        ("role",),
        "Connections turned away because there were too many.",
    ),
    Metric(
        "tern_server_held_bytes",
        "gauge",
        ("role",),
        "Bytes accepted and not answered yet, of all connections.",
    ),
    Metric("tern_server_disk_free_bytes", "gauge", ("role",), "Free space where it stores."),
    Metric("tern_server_disk_size_bytes", "gauge", ("role",), "Free and used space there."),
    Metric(
        "tern_server_append_seconds",
        "histogram",
        ("role",),
        "Writing one round of the message log, with its sync if there is one.",
    ),
    Metric("tern_server_sync_seconds", "histogram", ("role",), "One fdatasync of the message log."),
    Metric("tern_server_log_bytes", "gauge", ("role",), "Size of the message log."),
    Metric(
        "tern_read_bytes_total",
        "counter",
        (),
        "Bytes of messages read from files, being in memory no longer.",
    ),
    Metric(
        "tern_diverged_messages",
        "gauge",
        (),
        "A replica: messages acknowledged here that its master lacks.",
    ),
    # The broker.
    Metric(
        "tern_broker_alarms",
        "gauge",
        ("alarm",),
        "Groups over their backlog alarm; 1 while messages are refused because the disk is full or "
        "failed.",
    ),
    Metric("tern_broker_topics", "gauge", (), "Topics, our own not counted."),
    Metric("tern_broker_groups", "gauge", (), "Groups on topics, our own not counted."),
    # Topics.
    Metric(
        "tern_topic_stored_messages_total",
        "counter",
        ("topic",),
        "Messages stored, ever: the end of the topic's sequence.",
    ),
    Metric(
        "tern_topic_stored_bytes_total",
        "counter",
        ("topic",),
        "Bytes stored since the broker started.",
    ),
    Metric("tern_topic_kept_messages", "gauge", ("topic",), "Messages that retention has kept."),
    Metric(
        "tern_topic_publish_messages_per_second",
        "gauge",
        ("topic",),
        "Messages stored a second, over the last 10 s.",
    ),
    Metric(
        "tern_topic_publish_bytes_per_second",
        "gauge",
        ("topic",),
        "Bytes stored a second, over the last 10 s.",
    ),
    Metric(
        "tern_topic_refused_messages_total",
        "counter",
        ("topic", "reason"),
        "Messages refused since the broker started.",
    ),
    Metric(
        "tern_topic_put_aside_messages",
        "gauge",
        ("topic",),
        "Messages over a limit that were put aside and nobody has handled yet.",
    ),
    Metric(
        "tern_topic_half_messages",
        "gauge",
        ("topic", "state"),
        "Messages in transactions that have not ended.",
    ),
    # Groups.
    Metric(
        "tern_group_messages",
        "gauge",
        (*LANE, "state"),
        "The ledger's line: messages in each state; they add up to all there are.",
    ),
    Metric("tern_group_backlog_messages", "gauge", LANE, "Messages ready to be handed out."),
    Metric("tern_group_backlog_seconds", "gauge", LANE, "Age of the oldest message that is ready."),
    Metric(
        "tern_group_unacked_messages",
        "gauge",
        LANE,
        "Handed out and not settled: in flight, or waiting to be tried again.",
    ),
    Metric(
        "tern_group_delivered_messages_total",
        "counter",
        LANE,
        "Messages handed out since the broker started, each time counted.",
    ),
    Metric(
        "tern_group_delivered_bytes_total",
        "counter",
        LANE,
        "Bytes handed out since the broker started.",
    ),
    Metric(
        "tern_group_outcomes_total",
        "counter",
        (*LANE, "outcome"),
        "What became of messages since the broker started.",
    ),
    Metric(
        "tern_group_wait_seconds",
        "histogram",
        LANE,
        "From stored until handed out for the first time; messages since the broker started.",
    ),
    Metric(
        "tern_group_handle_seconds",
        "histogram",
        LANE,
        "From handed out until acked; messages since the broker started.",
    ),
    Metric("tern_group_members", "gauge", LANE, "Consumers that are there."),
    Metric(
        "tern_group_lane_ranges",
        "gauge",
        LANE,
        "Ranges in memory that say where messages are: what the group costs.",
    ),
    Metric("tern_group_alarm", "gauge", LANE, "1 while the backlog is over the group's alarm."),
    Metric(
        "tern_group_held_back",
        "gauge",
        LANE,
        "1 while nothing is handed out because of a pause or a limit.",
    ),
    Metric(
        "tern_group_dead_letters", "gauge", ("group",), "Dead letters that nobody has handled yet."
    ),
    Metric(
        "tern_delivery_records_damaged_bytes",
        "gauge",
        (),
        "Bytes of the pull log that a reader could not read since the start.",
    ),
    # The delay server.
    Metric(
        "tern_delay_messages",
        "gauge",
        ("topic", "state"),
        "The delay ledger's line: pending, dispatched, cancelled.",
    ),
    Metric("tern_delay_due_messages", "gauge", (), "Messages that are due and not decided yet."),
    Metric("tern_delay_late_messages", "gauge", (), "Those of them due for more than 2 s."),
    Metric(
        "tern_delay_unreadable_messages",
        "gauge",
        (),
        "Messages that were due and whose record cannot be read; they stay pending.",
    ),
    Metric(
        "tern_delay_lateness_seconds",
        "histogram",
        (),
        "From when the first message of a batch was due until a broker had it; messages.",
    ),
    Metric(
        "tern_delay_clock_jumps_total",
        "counter",
        (),
        "How often the wall clock was set since the start, by a second or more.",
    ),
    # The meta server.
    Metric("tern_meta_servers", "gauge", ("role", "state"), "Servers there, and known but away."),
    Metric(
        "tern_meta_heartbeat_age_seconds",
        "gauge",
        ("role", "server"),
        "Since when a server of its own process was not heard of.",
    ),
    Metric(
        "tern_meta_members",
        "gauge",
        ("role", "group", "state"),
        "Members of a broker group: all, and those in sync.",
    ),
    Metric(
        "tern_meta_epoch",
        "gauge",
        ("role", "group"),
        "The epoch of a broker group's master; grows with every change of it.",
    ),
    Metric("tern_meta_topics", "gauge", (), "Topics in the registry, our own counted."),
)

BY_NAME = {metric.name: metric for metric in METRICS}
