"""What a setting is: one name, one type, one default, its limits and its text, written once.

The settings of a part of the server are the annotated fields of one frozen dataclass next to that
part (`broker.config`, `meta.config`, …):

    lease_ms: Annotated[int, about("how long a consumer holds messages", 100, DAY_MS)] = 60_000

A field that is such a class itself brings its settings along; one that two classes share gets the
same values in both; one without `about` is no setting, and its own class checks it. Sizes and
durations may be written for people ("1GiB", "60s") or as plain numbers of bytes and milliseconds.
Types and limits are checked by msgspec; the texts of refusals are ours. This module knows no
setting by name and reads neither files nor the environment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ternmq.core.errors import BadConfig, BadRequest
from ternmq.core.units import parse_duration_ms, parse_size

ENV_PREFIX = "TERN_"

_WORDS = {"true": True, "yes": True, "on": True, "1": True}
_WORDS |= {"false": False, "no": False, "off": False, "0": False}

C = TypeVar("C")

_DESCRIBED: dict[type[Any], tuple[tuple["Setting", ...], dict[str, type[Any]]]] = {}


def about(text: str, low: int | None = None, high: int | None = None) -> msgspec.Meta:
    """What a setting is for, and its limits (both ends allowed)."""
    return msgspec.Meta(description=text, ge=low, le=high)


def size(text: str, low: int, high: int) -> msgspec.Meta:
    """What a number of bytes is for, and its limits."""
    return msgspec.Meta(description=text, ge=low, le=high, extra={"bytes": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table in docs/configuration.md."""

    name: str
    default: Any
    kind: Any
    """Its annotated type, as msgspec checks it."""

    @property
    def text(self) -> str:
        """What it is for."""
        return str(self._about.description)

    @property
    def limits(self) -> tuple[int, int] | None:
        """The least and the largest value."""
        low, high = self._about.ge, self._about.le
        return None if low is None or high is None else (int(low), int(high))

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def _about(self) -> msgspec.Meta:
        found: msgspec.Meta = self.kind.__metadata__[0]
        return found

    def read(self, written: Any) -> Any:
        """What people write, as a checked value; raises `BadConfig` with what to write instead."""
        return self.checked(self._plain(written))

    def checked(self, value: Any) -> Any:
        """A plain value as the type of the setting, within its limits; raises `BadConfig`."""
        try:
            return msgspec.convert(value, self.kind, dec_hook=_to_path)
        except msgspec.ValidationError:
            raise BadConfig(f"{self.name} must be {self._wanted(value)}, got {value!r}") from None

    def _plain(self, written: Any) -> Any:
        """Truth, numbers, sizes and durations as plain values."""
        if isinstance(self.default, bool):
            return _WORDS.get(str(written).lower(), written)
        if not isinstance(written, str) or not isinstance(self.default, int):
            return written
        if written.strip().isdecimal():
            return int(written)
        try:
            if self.name.endswith("_ms"):
                return parse_duration_ms(written)
            return parse_size(written) if self._about.extra else written
        except BadRequest as error:
            raise BadConfig(f"{self.name}: {error}") from error

    def _wanted(self, value: Any) -> str:
        plain = get_args(self.kind)[0]
        if get_origin(plain) is Literal:
            return " or ".join(map(str, get_args(plain)))
        if get_origin(plain) is Mapping:
            return "texts by name"
        match self.default:
            case bool():
                return "true or false"
            case int() if type(value) is int and self.limits is not None:
                return "{} to {}".format(*self.limits)
            case int() if type(value) is int and self._about.ge is not None:
                return f"at least {self._about.ge}"
            case int():
                return "a whole number"
            case float() if type(value) in (int, float) and self.limits is not None:
                return "{} to {}".format(*self.limits)
            case float():
                return "a number"
            case tuple():
                return "texts"
            case StrEnum():
                return " or ".join(type(self.default))
            case Path():
                return "a path"
            case _:
                return "a text"


def check(config: Any) -> None:
    """Check the settings that are fields of this config itself; raises `BadConfig`."""
    for setting in own_settings(type(config)):
        setting.checked(getattr(config, setting.name))


def all_settings(kind: type[Any]) -> Iterator[Setting]:
    """Every setting of such a config and of its parts; one of a shared part comes again."""
    yield from own_settings(kind)
    for part in _parts(kind).values():
        yield from all_settings(part)


def make(kind: type[C], values: Mapping[str, Any]) -> C:
    """A config with its parts; what is not among the values has its default."""
    own = {each.name: values[each.name] for each in own_settings(kind) if each.name in values}
    parts = {name: make(part, values) for name, part in _parts(kind).items()}
    return kind(**own, **parts)


def own_settings(kind: type[Any]) -> tuple[Setting, ...]:
    """The settings that are fields of such a config itself, in the order of its fields."""
    return _described(kind)[0]


def _parts(kind: type[Any]) -> dict[str, type[Any]]:
    return _described(kind)[1]


def _described(kind: type[Any]) -> tuple[tuple[Setting, ...], dict[str, type[Any]]]:
    """Settings and parts of a config, found once: looking at hints takes milliseconds."""
    if kind not in _DESCRIBED:
        hints = get_type_hints(kind, include_extras=True)
        own = tuple(
            Setting(name=field.name, default=field.default, kind=hints[field.name])
            for field in fields(kind)
            if get_origin(hints[field.name]) is Annotated
        )
        names = [field.name for field in fields(kind) if is_dataclass(hints[field.name])]
        _DESCRIBED[kind] = own, {name: hints[name] for name in names}
    return _DESCRIBED[kind]


def _to_path(kind: type[Any], value: Any) -> Path:
    """The one type of ours that msgspec does not know."""
    if not isinstance(value, str | Path) or not str(value):
        raise msgspec.ValidationError
    return Path(value)
