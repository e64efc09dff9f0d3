"""A seeded node with security on, users of every kind, and the console over it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ternmq import connect
from ternmq.console.config import ConsoleConfig
from ternmq.console.process import making_site, serving_console
from ternmq.core.clock import SystemClock
from ternmq.node.console_user import CONSOLE_USER, PASSWORD_FILE
from ternmq.testing import node
from tests.integration.console.seeded import seed
from tests.integration.processes import free_ports

PASSWORD = "correct horse battery"
GRANTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "viewer": (("describe", "*"),),
    "reader": (("describe", "*"), ("read", "order.*")),
    "operator": (
        ("describe", "*"),
        ("read", "*"),
        ("publish", "*"),
        ("operate", "*"),
        ("delay", "*"),
    ),
    "owner": (("*", "order.*"), ("operate", "group:billing"), ("operate", "group:analytics")),
    "nobody": (),
    "boss": (("*", "*"),),
}
ROLES = ("viewer", "reader", "operator", "owner", "nobody", "boss")


@dataclass(frozen=True, slots=True)
class SecuredConsole:
    """Where it is, and what is in it."""

    url: str
    """Of the cluster, without a user."""
    origin: str
    ids: dict[str, str]
    app: Any
    admin_password: str

    @asynccontextmanager
    async def browser(
        self, user: str = "", password: str = PASSWORD
    ) -> AsyncIterator[httpx.AsyncClient]:
        """Sends what a browser sends; logged in, if there is a user."""
        transport = None if self.app is None else httpx.ASGITransport(self.app)
        headers = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
        async with httpx.AsyncClient(
            transport=transport, base_url=self.origin, headers=headers, timeout=30, verify=False
        ) as http:
            if user:
                came = await log_in(http, user, password)
                assert came.status_code == 303, came.text
            yield http

    def as_user(self, user: str) -> str:
        return self.url.replace("://", f"://{user}@", 1)


async def log_in(http: httpx.AsyncClient, user: str, password: str = PASSWORD) -> httpx.Response:
    return await http.post("/login", data={"user": user, "password": password, "next": "/"})


@asynccontextmanager
async def secured(
    data_dir: Path, *, listens: bool = False, seeds: bool = True, **options: Any
) -> AsyncIterator[SecuredConsole]:
    settings = options.pop("settings", {})
    async with node(data_dir=data_dir, security=True, console=True, **settings) as url:
        password = (data_dir / "admin-password").read_text(encoding="ascii").strip()
        admin = url.replace("://", "://admin@", 1)
        ids = await seed(admin, large=False, password=password) if seeds else {}
        async with connect(admin, password=password) as mq:
            for name, lines in GRANTS.items():
                await mq.admin.add_user(name, PASSWORD, iterations=4096)
                for action, resource in lines:
                    await mq.admin.grant(name, action, resource)
        config = ConsoleConfig(
            url=url.replace("://", f"://{CONSOLE_USER}@", 1),
            port=free_ports(1),
            password_file=str(data_dir / PASSWORD_FILE),
            **options,
        )
        if listens:
            async with serving_console(config, SystemClock()) as origin:
                yield SecuredConsole(url, origin, ids, None, password)
            return
        async with making_site(config, SystemClock()) as site:
            yield SecuredConsole(url, config.origin, ids, site.app, password)
