"""Writes the Grafana dashboards in `deploy/grafana` from the short tables below.

    python scripts/make_dashboards.py            write them
    python scripts/make_dashboards.py --check    say which are out of date, and fail

A dashboard is a list of panels, each a title, a unit and queries. Grafana's JSON is long and alike;
written by hand, one panel forgets what the next one has. Every metric that a query names is held
against `metrics/table.py` by a test.
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "grafana"
WIDTH, HEIGHT, ACROSS = 12, 8, 24
SCHEMA = 39


class Panel(NamedTuple):
    """One picture: queries with the legend of each."""

    title: str
    unit: str
    queries: list[tuple[str, str]]
    text: str = ""


class Dashboard(NamedTuple):
    """One page of panels; `variables` are labels to choose by, with the metric that has them."""

    name: str
    title: str
    variables: list[tuple[str, str]]
    panels: list[Panel]


def p99(metric: str, by: str = "", chosen: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile(0.99, sum by ({labels}) (rate({metric}_bucket{chosen}[5m])))"


REFUSED = "tern_topic_refused_messages_total"
TOPIC = '{topic=~"$topic"}'
GROUP = '{topic=~"$topic", group=~"$group"}'

DASHBOARDS = [
    Dashboard(
        "overview",
        "TernMQ: overview",
        [],
        [
            Panel(
                "Stored a second",
                "short",
                [
                    ("sum(tern_topic_publish_messages_per_second)", "messages"),
                    ("sum(rate(tern_group_delivered_messages_total[1m]))", "handed out"),
                ],
            ),
            Panel(
                "Bytes stored a second",
                "Bps",
                [("sum(tern_topic_publish_bytes_per_second)", "bytes")],
            ),
            Panel(
                "Oldest message that waits, worst groups",
                "s",
                [("topk(10, tern_group_backlog_seconds)", "{{topic}} {{group}}")],
                "Age, not count: a million messages of the last second are no trouble.",
            ),
            Panel(
                "Alarms and dead letters",
                "short",
                [
                    ("sum by (alarm) (tern_broker_alarms)", "{{alarm}}"),
                    ("sum(tern_group_dead_letters)", "dead letters"),
                    ("sum(tern_topic_put_aside_messages)", "put aside"),
                ],
            ),
            Panel(
                "Sync of the log, p99", "s", [(p99("tern_server_sync_seconds", "role"), "{{role}}")]
            ),
            Panel(
                "Disk free",
                "percentunit",
                [
                    (
                        "tern_server_disk_free_bytes / tern_server_disk_size_bytes",
                        "{{instance}} {{role}}",
                    )
                ],
            ),
            Panel(
                "Servers that take messages",
                "short",
                [("tern_server_healthy", "{{instance}} {{role}}")],
            ),
            Panel(
                "Lag of event loops, p99",
                "s",
                [(p99("tern_loop_lag_seconds", "instance"), "{{instance}}")],
            ),
        ],
    ),
    Dashboard(
        "topic",
        "TernMQ: topic",
        [("topic", "tern_topic_kept_messages")],
        [
            Panel(
                "Messages stored a second",
                "short",
                [(f"tern_topic_publish_messages_per_second{TOPIC}", "{{topic}}")],
            ),
            Panel(
                "Bytes stored a second",
                "Bps",
                [(f"tern_topic_publish_bytes_per_second{TOPIC}", "{{topic}}")],
            ),
            Panel(
                "Refused, by reason",
                "short",
                [
                    (
                        f"sum by (topic, reason) (rate({REFUSED}{TOPIC}[5m]))",
                        "{{topic}} {{reason}}",
                    )
                ],
            ),
            Panel("Kept", "short", [(f"tern_topic_kept_messages{TOPIC}", "{{topic}}")]),
            Panel(
                "Put aside, over a limit",
                "short",
                [(f"tern_topic_put_aside_messages{TOPIC}", "{{topic}}")],
            ),
            Panel(
                "In transactions that have not ended",
                "short",
                [(f"tern_topic_half_messages{TOPIC}", "{{topic}} {{state}}")],
            ),
            Panel(
                "Its groups: oldest message that waits",
                "s",
                [(f"tern_group_backlog_seconds{TOPIC}", "{{group}} {{lane}}")],
            ),
        ],
    ),
    Dashboard(
        "group",
        "TernMQ: group",
        [("topic", "tern_topic_kept_messages"), ("group", "tern_group_members")],
        [
            Panel(
                "The ledger, what is open",
                "short",
                [
                    (
                        'tern_group_messages{topic=~"$topic", group=~"$group", '
                        'state=~"ready|in_flight|waiting_retry|dead"}',
                        "{{group}} {{state}}",
                    )
                ],
                "All states of a group add up to all messages there are.",
            ),
            Panel(
                "Oldest message that waits",
                "s",
                [(f"tern_group_backlog_seconds{GROUP}", "{{group}}")],
            ),
            Panel(
                "Handed out a second",
                "short",
                [(f"rate(tern_group_delivered_messages_total{GROUP}[1m])", "{{group}} {{lane}}")],
            ),
            Panel(
                "What became of messages, a second",
                "short",
                [
                    (
                        f"sum by (group, outcome) (rate(tern_group_outcomes_total{GROUP}[1m]))",
                        "{{group}} {{outcome}}",
                    )
                ],
            ),
            Panel(
                "Wait and handling, p99",
                "s",
                [
                    (p99("tern_group_wait_seconds", "group", GROUP), "{{group}} waits"),
                    (p99("tern_group_handle_seconds", "group", GROUP), "{{group}} handles"),
                ],
            ),
            Panel("Consumers", "short", [(f"tern_group_members{GROUP}", "{{group}}")]),
            Panel("Not settled", "short", [(f"tern_group_unacked_messages{GROUP}", "{{group}}")]),
            Panel(
                "Held back, or over its alarm",
                "short",
                [
                    (f"tern_group_held_back{GROUP}", "{{group}} held back"),
                    (f"tern_group_alarm{GROUP}", "{{group}} alarm"),
                ],
            ),
            Panel(
                "Dead letters that nobody has handled",
                "short",
                [('tern_group_dead_letters{group=~"$group"}', "{{group}}")],
            ),
        ],
    ),
    Dashboard(
        "delay",
        "TernMQ: delayed messages",
        [("topic", "tern_delay_messages")],
        [
            Panel(
                "Messages for later",
                "short",
                [
                    (
                        'sum by (topic) (tern_delay_messages{topic=~"$topic", state="pending"})',
                        "{{topic}}",
                    )
                ],
            ),
            Panel(
                "Sent on, a second",
                "short",
                [
                    (
                        'sum(deriv(tern_delay_messages{topic=~"$topic", state="dispatched"}[5m]))',
                        "dispatched",
                    ),
                    (
                        'sum(deriv(tern_delay_messages{topic=~"$topic", state="cancelled"}[5m]))',
                        "cancelled",
                    ),
                ],
            ),
            Panel("How late, p99", "s", [(p99("tern_delay_lateness_seconds"), "lateness")]),
            Panel(
                "Due and not decided",
                "short",
                [
                    ("tern_delay_due_messages", "{{instance}} due"),
                    ("tern_delay_late_messages", "{{instance}} late"),
                    ("tern_delay_unreadable_messages", "{{instance}} unreadable"),
                ],
            ),
            Panel(
                "The clock was set",
                "short",
                [("increase(tern_delay_clock_jumps_total[1h])", "{{instance}}")],
            ),
        ],
    ),
    Dashboard(
        "cluster",
        "TernMQ: cluster",
        [],
        [
            Panel(
                "Servers",
                "short",
                [("max by (role, state) (tern_meta_servers)", "{{role}} {{state}}")],
            ),
            Panel(
                "Members of broker groups, all and in sync",
                "short",
                [
                    (
                        "max by (role, group, state) (tern_meta_members)",
                        "{{role}} {{group}} {{state}}",
                    )
                ],
            ),
            Panel(
                "Changes of masters",
                "short",
                [("changes(tern_meta_epoch[1h])", "{{role}} {{group}}")],
                "Every change raises the epoch.",
            ),
            Panel(
                "Since when a server was not heard of",
                "s",
                [
                    (
                        "max by (role, server) (tern_meta_heartbeat_age_seconds)",
                        "{{role}} {{server}}",
                    )
                ],
            ),
            Panel("Connections", "short", [("tern_server_connections", "{{instance}} {{role}}")]),
            Panel(
                "Connections turned away",
                "short",
                [("rate(tern_server_refused_connections_total[5m])", "{{instance}} {{role}}")],
            ),
            Panel(
                "Bytes without an answer yet",
                "bytes",
                [("tern_server_held_bytes", "{{instance}} {{role}}")],
            ),
            Panel(
                "Writing a round, p99",
                "s",
                [(p99("tern_server_append_seconds", "instance, role"), "{{instance}} {{role}}")],
            ),
            Panel(
                "Size of message logs",
                "bytes",
                [("tern_server_log_bytes", "{{instance}} {{role}}")],
            ),
            Panel(
                "Days until a certificate expires",
                "d",
                [("(tern_tls_certificate_expires_at_seconds - time()) / 86400", "{{instance}}")],
            ),
            Panel(
                "Messages that a replica's master lacks",
                "short",
                [("tern_diverged_messages", "{{instance}}")],
            ),
        ],
    ),
]


def made(dashboard: Dashboard) -> dict[str, Any]:
    """As Grafana imports it."""
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "uid": f"ternmq-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["ternmq"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["ternmq"], "asDropdown": True, "title": "TernMQ"}
        ],
        "templating": {
            "list": [
                {"name": "source", "type": "datasource", "query": "prometheus", "label": "source"},
                *(_variable(label, metric, source) for label, metric in dashboard.variables),
            ]
        },
        "panels": [
            _panel(number, panel, source) for number, panel in enumerate(dashboard.panels, start=1)
        ],
    }


def _variable(label: str, metric: str, source: dict[str, str]) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": source,
        "query": {"query": f"label_values({metric}, {label})", "refId": label},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel, source: dict[str, str]) -> dict[str, Any]:
    place = number - 1
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": source,
        "gridPos": {
            "w": WIDTH,
            "h": HEIGHT,
            "x": place * WIDTH % ACROSS,
            "y": place * WIDTH // ACROSS * HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["last"]}},
        "targets": [
            {"refId": chr(65 + at), "expr": query, "legendFormat": legend, "datasource": source}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def text_of(dashboard: Dashboard) -> str:
    return json.dumps(made(dashboard), indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    stale = []
    for dashboard in DASHBOARDS:
        path = FOLDER / f"{dashboard.name}.json"
        if path.exists() and path.read_text(encoding="utf-8") == text_of(dashboard):
            continue
        stale.append(path.name)
        if "--check" not in arguments:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(dashboard), encoding="utf-8")
    if stale and "--check" in arguments:
        sys.stderr.write(f"out of date: {', '.join(stale)}: run this without --check\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
