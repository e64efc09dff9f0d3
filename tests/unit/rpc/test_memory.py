"""Keeping freed memory is a matter of speed: where it cannot be had, nothing else changes."""

import ctypes

import pytest

from ternmq.rpc.memory import keep_freed_memory


def test_it_can_be_asked_for_again_and_again() -> None:
    assert keep_freed_memory() == keep_freed_memory()


def test_a_c_library_without_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())

    assert not keep_freed_memory()
