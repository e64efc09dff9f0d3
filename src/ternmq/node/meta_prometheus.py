"""The figures of a meta server for Prometheus, worked out at every scrape."""

from collections import Counter

from ternmq.meta.directory import MetaDirectory
from ternmq.meta.routing.registrar import Registrar
from ternmq.meta.routing.route_table import RouteTable
from ternmq.metrics.samples import Samples
from ternmq.metrics.table import SERVERS_MAX

ROLES = {"realtime": "broker", "delay": "delay"}


def registry_figures(
    out: Samples, directory: MetaDirectory, routes: RouteTable, registrar: Registrar
) -> None:
    """Servers on the routes, servers that are away, the age of each heartbeat."""
    current = routes.current()
    there = Counter(ROLES[route.kind] for route in current.servers)
    away = Counter(ROLES[route.kind] for route in current.away)
    for role in ROLES.values():
        out.add("tern_meta_servers", there[role], role, "there")
        out.add("tern_meta_servers", away[role], role, "away")
    for route, silent_s in registrar.silent()[:SERVERS_MAX]:
        # Of a group with replicas the one that was silent for longest.
        name = (ROLES[route.kind], route.broker_group)
        out.highest("tern_meta_heartbeat_age_seconds", silent_s, *name)
    for standing in directory.standings()[:SERVERS_MAX]:
        group = (ROLES[standing.kind], standing.broker_group)
        out.add("tern_meta_members", len(standing.members), *group, "all")
        out.add("tern_meta_members", len(standing.in_sync), *group, "in_sync")
        out.add("tern_meta_epoch", standing.epoch, *group)
    out.add("tern_meta_topics", directory.topic_count)
