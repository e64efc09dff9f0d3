"""The addresses that clients and servers are told: advertised ones, not bound ones."""

import socket

from ternmq.discovery.url import format_url
from ternmq.node.config import NodeConfig
from ternmq.replication.member.member_location import MemberLocation
from ternmq.rpc.address import join_address
from ternmq.wire.messages.servers import Route

ANY_ADDRESS = ("0.0.0.0", "::")


def node_url(config: NodeConfig) -> str:
    """How clients on this machine say where the meta server is."""
    host = "127.0.0.1" if config.host in ANY_ADDRESS else config.host
    return format_url([join_address(host, config.meta_port)], tls=config.tls.tls)


def meta_address(config: NodeConfig) -> str:
    return _advertised(config, config.meta_port)


def broker_route(config: NodeConfig) -> Route:
    """What clients are told about the broker of this config."""
    return Route(broker_group=config.broker_group, address=broker_place(config).address)


def delay_route(config: NodeConfig) -> Route:
    """What clients are told about the delay server of this config."""
    address = delay_place(config).address
    return Route(broker_group=config.broker_group, address=address, kind="delay")


def broker_place(config: NodeConfig) -> MemberLocation:
    return _place(config, config.broker_port)


def delay_place(config: NodeConfig) -> MemberLocation:
    return _place(config, config.delay_port)


def _place(config: NodeConfig, port: int) -> MemberLocation:
    return MemberLocation(
        broker_group=config.broker_group,
        data_dir=config.data_dir,
        host=config.host,
        port=port,
        address=_advertised(config, port),
    )


def advertised_host(config: NodeConfig) -> str:
    """The address that clients are told; a machine that listens everywhere is known by its name."""
    if config.advertised_host:
        return config.advertised_host
    return socket.gethostname() if config.host in ANY_ADDRESS else config.host


def _advertised(config: NodeConfig, port: int) -> str:
    """Ports may be mapped on the way (a container, a NAT): then others are told than are bound."""
    shift = config.advertised_ports - config.ports if config.advertised_ports else 0
    return join_address(advertised_host(config), port + shift)
