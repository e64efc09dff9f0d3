"""The frame of files that are replaced as a whole."""

import pytest

from ternmq.core.errors import Corrupt
from ternmq.storage.files.whole_file import check_version, pack_whole, read_whole


def test_a_body_comes_back_as_it_was_sealed() -> None:
    content = pack_whole(b"TEST", b"body")

    assert content == bytes.fromhex("5445535450c93f26") + b"body"
    assert bytes(read_whole(content, b"TEST", "the file")) == b"body"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is too short"),
        (pack_whole(b"TEST", b"abc"), "the file is too short"),
        (pack_whole(b"ELSE", b"body"), "the file does not match its checksum"),
        (pack_whole(b"TEST", b"body")[:-1] + b"?", "the file does not match its checksum"),
    ],
)
def test_what_is_not_such_a_file_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(Corrupt, match=said):
        read_whole(content, b"TEST", "the file", body_min=4)


def test_a_version_that_is_not_known_is_named() -> None:
    with pytest.raises(Corrupt, match="the file has version 7, this is version 2"):
        check_version(7, 2, "the file")
