"""Master keys: they wrap data keys, so that what the registry keeps opens nothing by itself.

A master key has a name, by which topics ask for it (`master_key` of a topic), and each client knows
by itself where its key is: a file that nobody else may read, an environment variable, or an object
of the application that asks a key service (`MasterKey`). The reference is text and may be anywhere;
the key is in no url, argument, log or error. Servers have none of them.

What is wrapped says for which topic and label, authenticated: a wrapped key put in the place of
another does not open. Files and the environment are read when a key is first needed.
"""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from ternmq.core.errors import BadConfig, Corrupt, KeyNotFound
from ternmq.core.ids import check_name
from ternmq.security.access.secret import read_secret
from ternmq.security.sealing.data_key import KEY_SIZE, need_cryptography

VARIABLE = "TERN_KEYS"
WRAPPED_SIZE_MAX = 2_048
_VERSION = b"\x01"
_NONCE_SIZE = 12
_FORM = "NAME=file:PATH or NAME=env:VARIABLE, several with commas"


@runtime_checkable
class MasterKey(Protocol):
    """A key service of the application. `context` has to be the same for both, or it refuses."""

    async def wrap(self, key: bytes, context: bytes, /) -> bytes: ...

    async def unwrap(self, wrapped: bytes, context: bytes, /) -> bytes: ...


class KeptKey:
    """A master key of 32 bytes from a file or the environment; implements `MasterKey`."""

    def __init__(self, name: str, reference: str) -> None:
        self._name = name
        self._reference = reference
        self._key: bytes | None = None

    def __repr__(self) -> str:
        return f"KeptKey({self._name!r}, {self._reference!r})"

    async def wrap(self, key: bytes, context: bytes, /) -> bytes:
        need_cryptography()
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_SIZE)
        return _VERSION + nonce + AESGCM(self._read()).encrypt(nonce, key, context)

    async def unwrap(self, wrapped: bytes, context: bytes, /) -> bytes:
        need_cryptography()
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = wrapped[1 : 1 + _NONCE_SIZE]
        try:
            if wrapped[:1] != _VERSION:
                raise ValueError
            return AESGCM(self._read()).decrypt(nonce, wrapped[1 + _NONCE_SIZE :], context)
        except (InvalidTag, ValueError):
            raise Corrupt(
                f"the master key {self._name!r} ({self._reference}) does not open this data key: "
                "it is another key of the same name; use the one that the producers have"
            ) from None

    def _read(self) -> bytes:
        if self._key is None:
            kind, _, place = self._reference.partition(":")
            if kind == "file":
                text = read_secret(Path(place), f"the master key {self._name!r}").reveal()
            else:
                text = os.environ.get(place, "")
                if not text:
                    raise KeyNotFound(
                        f"master key {self._name!r}: the environment variable {place} is not set"
                    )
            self._key = _decoded(self._name, self._reference, text)
        return self._key


class MasterKeys:
    """All that one client has, by name."""

    def __init__(self, keys: Mapping[str, MasterKey]) -> None:
        self._keys = dict(keys)

    def find(self, name: str, topic: str) -> MasterKey:
        """Raises `KeyNotFound`, which says what to do."""
        found = self._keys.get(name)
        if found is None:
            raise KeyNotFound(
                f"topic {topic!r} is encrypted and this client has no master key {name!r}: name "
                f"it with keys={{{name!r}: 'file:PATH'}} on connect, or {VARIABLE}={name}=file:PATH"
            )
        return found


def find_master_keys(keys: object, environment: Mapping[str, str]) -> MasterKeys:
    """What was given on connect, else what the environment names."""
    if keys is None:
        keys = environment.get(VARIABLE, "")
    if isinstance(keys, str):
        keys = dict(_split(part) for part in keys.split(",") if part.strip())
    if not isinstance(keys, Mapping):
        raise BadConfig(f"keys is a dict of names to references or objects, or text: {_FORM}")
    return MasterKeys({_name(name): _master_key(name, key) for name, key in keys.items()})


def context_of(master_key: str, topic: str, label: str) -> bytes:
    """What a data key is wrapped for."""
    return "\0".join(("tern key 1", master_key, topic, label)).encode()


def new_key_text() -> str:
    """A master key as its file has it."""
    return os.urandom(KEY_SIZE).hex()


def _split(part: str) -> tuple[str, str]:
    name, sign, reference = part.strip().partition("=")
    if not sign:  # It may be the key itself: never shown.
        raise BadConfig(f"master keys are named by where they are: {_FORM}")
    return name, reference


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise BadConfig(f"keys: a name of a master key is text: {_FORM}")
    check_name("master key", name)
    return name


def _master_key(name: str, key: object) -> MasterKey:
    if isinstance(key, str):
        kind, _, place = key.partition(":")
        if kind not in ("file", "env") or not place:  # It may be the key itself: never shown.
            raise BadConfig(f"master key {name!r} is named by where it is: {_FORM}")
        return KeptKey(name, key)
    if not isinstance(key, MasterKey):
        raise BadConfig(f"master key {name!r} needs the methods wrap and unwrap, or is a reference")
    return key


def _decoded(name: str, reference: str, text: str) -> bytes:
    text = text.strip()
    try:
        key = bytes.fromhex(text) if len(text) == 2 * KEY_SIZE else base64.b64decode(text)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_SIZE:
        raise BadConfig(
            f"master key {name!r} ({reference}) is no key of {KEY_SIZE} bytes, in hex or base64: "
            "'tern key make FILE' makes one"
        )
    return key
