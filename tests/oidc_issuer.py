"""A small issuer of tokens, real: keys made by joserfc, published over HTTP by a thread."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

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
        self.codes: dict[str, dict[str, str]] = {}
        self.person = "viewer"
        self.nonce = ""
        """Put into tokens in place of what was asked for."""
        self.lasts_s = 600.0
        self.gives_more = False
        self.refreshed = 0
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                place = urlsplit(self.path)
                if place.path == "/.well-known/openid-configuration":
                    self._say(issuer.document)
                    return
                if place.path == "/authorize":
                    self.send_response(302)
                    self.send_header("Location", issuer.approve(dict(parse_qsl(place.query))))
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                issuer.asked += 1
                published = KeySet(issuer.keys).as_dict(private=False)
                published["keys"] += issuer.more
                body = b"<html>" if issuer.broken else json.dumps(published).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                answer = issuer.exchange(dict(parse_qsl(self.rfile.read(size).decode())))
                self._say(answer, 200 if "id_token" in answer else 400)

            def _say(self, facts: dict[str, Any], status: int = 200) -> None:
                body = json.dumps(facts).encode()
                self.send_response(status)
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

    @property
    def document(self) -> dict[str, Any]:
        """Where things are."""
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def approve(self, asked: dict[str, str]) -> str:
        """Whoever comes is `person`; back with a code."""
        assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.url}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def exchange(self, given: dict[str, str]) -> dict[str, Any]:
        """A code or a refresh token for an id token; each code once, with its verifier."""
        if given["grant_type"] == "refresh_token":
            self.refreshed += 1
            return {"id_token": self._id_token()}
        asked = self.codes.pop(given["code"], None)
        digest = hashlib.sha256(given["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or challenge != asked["code_challenge"]:
            return {"error": "invalid_grant"}
        nonce = self.nonce or asked["nonce"]
        return {"id_token": self._id_token(nonce=nonce)} | (
            {"refresh_token": "more"} if self.gives_more else {}
        )

    def _id_token(self, **more: str) -> str:
        now = time.time()
        return self.token(self.person, iat=now, exp=now + self.lasts_s, **more)

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
