"""The keys of an issuer outside, as it publishes them: fetched beside the loop, kept in memory.

Fetched at the start and every ten minutes; and when a token names a key that is not known, at most
every `AGAIN_S`: who makes up key ids makes no traffic. Whoever shows such a token is told to come
again (`Unavailable`), which clients do by themselves. While the issuer does not answer the last
keys that it gave are used. Never waits on the loop, never reads more than `SIZE_MAX`.
"""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from ternmq.core.errors import Unauthorized, Unavailable
from ternmq.core.log import get_logger
from ternmq.security.access import oidc
from ternmq.security.access.token import TokenClaims

REFRESH_S = 600.0
AGAIN_S = 5.0
TIMEOUT_S = 5.0
SIZE_MAX = 1024 * 1024

log = get_logger()


class OidcKeys:
    """Public keys of one issuer, for one server."""

    def __init__(
        self,
        config: oidc.OidcConfig,
        *,
        monotonic: Callable[[], float],
        again_s: float = AGAIN_S,
    ) -> None:
        self._config = config
        self._monotonic = monotonic
        self._again_s = again_s
        self._keys: dict[str, Any] = {}
        self._fetched_at = float("-inf")
        self._wanted = asyncio.Event()
        self.fetches = 0

    @property
    def known(self) -> int:
        """How many there are."""
        return len(self._keys)

    def ask(self) -> None:
        """Soon, beside the loop."""
        self._wanted.set()

    def is_of(self, text: str) -> bool:
        """Does a token say that it is of this issuer?"""
        return oidc.is_of(self._config, text)

    def claims(self, text: str, now_ms: int) -> TokenClaims:
        """Whom it names; raises `Unauthorized`, or `Unavailable` where its key is asked for now."""
        if oidc.key_id(text) not in self._keys:
            if self._monotonic() - self._fetched_at < self._again_s:
                raise Unauthorized("the issuer has no such key for this token")
            self.ask()
            raise Unavailable("the keys of the issuer are asked for; try again in a moment")
        return oidc.read_claims(self._config, text, self._keys, now_ms=now_ms)

    async def run(self) -> None:
        """Keep them fresh."""
        while True:
            await self._fetch()
            try:
                async with asyncio.timeout(REFRESH_S):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    async def _fetch(self) -> None:
        self.fetches += 1
        try:
            document = await asyncio.to_thread(fetched, self._config.oidc_jwks_url)
            self._keys = oidc.read_keys(document)
        except (OSError, ValueError) as error:
            log.warning(
                "the keys of the issuer are not there; those of before are used",
                issuer=self._config.oidc_issuer,
                known=len(self._keys),
                reason=str(error),
            )
        self._fetched_at = self._monotonic()
        self._wanted.clear()


def fetched(url: str) -> bytes:
    """Blocks. Raises `OSError` or `ValueError`."""
    asked = urllib.request.Request(url, headers={"Accept": "application/json"})
    with _OPENER.open(asked, timeout=TIMEOUT_S) as answer:
        document = bytes(answer.read(SIZE_MAX + 1))
    if len(document) > SIZE_MAX:
        raise ValueError(f"more than {SIZE_MAX} bytes of keys")
    return document


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Keys come from where the settings say."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)
