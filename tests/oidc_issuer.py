"""A small issuer of tokens, real: keys made by joserfc, published over HTTP by a thread."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

AUDIENCE = "tern-orders"


class OidcIssuer:
    """Signs, publishes its keys, takes new ones, and can fail."""

    def __init__(self) -> None:
        self.keys: list[Any] = [RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})]
        self.more: list[dict[str, Any]] = []
        """Published besides."""
        self.asked = 0
        self.broken = False
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                published = KeySet(issuer.keys).as_dict(private=False)
                published["keys"] += issuer.more
                body = b"<html>" if issuer.broken else json.dumps(published).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def settings(self) -> dict[str, str]:
        """As a server is configured for it."""
        return {
            "oidc_issuer": self.url,
            "oidc_audience": AUDIENCE,
            "oidc_jwks_url": f"{self.url}/keys",
        }

    def claims(self, user: str = "shop", **changes: Any) -> dict[str, Any]:
        """Of a good token; None takes one away."""
        now = time.time()
        made = {"iss": self.url, "aud": AUDIENCE, "sub": user, "iat": now - 5, "exp": now + 600}
        return {name: value for name, value in (made | changes).items() if value is not None}

    def token(self, user: str = "shop", **changes: Any) -> str:
        return self.signed(self.claims(user, **changes))

    def signed(self, claims: dict[str, Any], key: Any = None, **header: Any) -> str:
        key = key or self.keys[-1]
        alg = {"RSA": "RS256", "EC": "ES256"}.get(key.key_type, "HS256")
        made = {"alg": alg, "kid": key.kid} | header
        return jwt.encode(made, claims, key, algorithms=[made["alg"]])

    def rotate(self) -> None:
        """Another key, of another kind; the old ones are not good any more."""
        self.keys = [ECKey.generate_key("P-256", {"kid": f"key-{self.asked}", "use": "sig"})]

    def run(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def issuing() -> Iterator[OidcIssuer]:
    issuer = OidcIssuer()
    thread = threading.Thread(target=issuer.run, name="issuer", daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        issuer.stop()
        thread.join()
