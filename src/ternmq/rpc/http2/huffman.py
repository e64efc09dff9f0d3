"""The Huffman code of HPACK (RFC 7541, appendix B): text of headers from its bits.

The code is canonical: the letters of each length, in order, are all there is to know. Decoding
takes a byte at a time: for each inner node of the tree a row of 256 steps says where eight bits
lead and which letters they pass. Rows are made when first needed; there are 256 nodes, so a hostile
sender cannot make more. Never encodes: what we send is short and the same. Pure.
"""

LETTERS_BY_SIZE: dict[int, bytes] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: bytes.fromhex("5cc3d0"),
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9"),
    30: bytes.fromhex("0a0d16"),
}
"""By the length of their code in bits. The last code, 30 ones, is the end, which nobody sends."""
END_SIZE = 30
PADDING_MAX = 7

HuffmanStep = tuple[int, bytes]
"""Where eight bits lead, and the letters on the way."""
_Node = list[int]
"""What follows a 0 and a 1: another node, or below zero a letter (-1 - letter)."""
_END = -1 - 256


def _make_tree() -> list[_Node]:
    nodes: list[_Node] = [[0, 0]]
    code = size_before = 0
    for size, letters in LETTERS_BY_SIZE.items():
        code <<= size - size_before
        size_before = size
        for letter in letters:
            _plant(nodes, code, size, -1 - letter)
            code += 1
    _plant(nodes, (1 << END_SIZE) - 1, END_SIZE, _END)
    return nodes


def _plant(nodes: list[_Node], code: int, size: int, leaf: int) -> None:
    at = 0
    for shift in range(size - 1, 0, -1):
        bit = code >> shift & 1
        if not nodes[at][bit]:
            nodes.append([0, 0])
            nodes[at][bit] = len(nodes) - 1
        at = nodes[at][bit]
    nodes[at][code & 1] = leaf


_TREE = _make_tree()
_FAILED = len(_TREE)
"""Leads to itself, whatever comes."""
_ROWS: list[list[HuffmanStep] | None] = [*([None] * len(_TREE)), [(_FAILED, b"")] * 256]


def _padding_nodes() -> frozenset[int]:
    """Where a text may end: at a letter's end, or up to seven ones after it."""
    found, at = {0}, 0
    for _ in range(PADDING_MAX):
        at = _TREE[at][1]
        found.add(at)
    return frozenset(found)


_ENDS = _padding_nodes()


def _make_row(node: int) -> list[HuffmanStep]:
    row = [_walk(node, byte) for byte in range(256)]
    _ROWS[node] = row
    return row


def _walk(node: int, byte: int) -> HuffmanStep:
    letters = bytearray()
    for shift in range(7, -1, -1):
        node = _TREE[node][byte >> shift & 1]
        if node == _END:
            return _FAILED, b""
        if node < 0:
            letters.append(-1 - node)
            node = 0
    return node, bytes(letters)


def huffman_decode(coded: bytes) -> bytes:
    """The text; raises `ValueError` where the bits are none of this code."""
    rows = _ROWS
    node = 0
    text = b""
    for byte in coded:
        node, letters = (rows[node] or _make_row(node))[byte]
        text += letters
    if node not in _ENDS:
        raise ValueError("a text that ends inside of a letter, or has the end code in it")
    return text
