"""Damages an input: bits, cuts, splices, odd tokens, nesting, and archives whose members or directory are changed."""

from __future__ import annotations

import io
import random
import re
import struct
import zipfile
from collections.abc import Callable, Sequence

NUMBERS = (
    b"-1", b"0", b"1e999", b"-1e308", b"1e-320", b"nan", b"inf", b"NaN", b"-0.0", b"2147483648",
    b"18446744073709551616", b"9" * 400, b"1_000", b"0x1F", b"0.1.2", b"1e9", b"100000001", b"true",
    b"null", b"[]", b"{}", b'""', b"1979-05-27",
)  # fmt: skip
TEXTS = (
    b"\\u0000", b"\\ud800", b"\x1b[2J", b"\x00", b"\xff\xfe", b"\xc2\x85", b"../../../etc/passwd", b"/dev/zero",
    b"~root", b"~nobody99/x", b"%s%n{}", b"<script>", b"", b" ", b"a" * 5000, "\N{RIGHT-TO-LEFT OVERRIDE}x".encode(),
    b"os:system", b"__import__('os')", b"?", b"NA", b"x0", b"constructor", b"server",
)  # fmt: skip
NESTS = ((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"a.", b""), (b"[[", b"]]"))
NUMBER = re.compile(rb"-?\d+(\.\d+)?([eE][+-]?\d+)?")
TEXT = re.compile(rb'"[^"\n]{0,80}"')
WORD = re.compile(rb"[A-Za-z_][\w-]*")
MOST = 200_000  # bytes of an input

Mutation = Callable[[random.Random, bytes], bytes]


def mutate(draw: random.Random, content: bytes, others: Sequence[bytes]) -> bytes:
    """A damaged copy of an input; `others` are valid inputs to splice with."""
    if content.startswith(b"PK\x03\x04") and draw.random() < 0.6:
        return _archive(draw, content)
    size = int.from_bytes(content[:8], "little")
    if content[8:9] == b"{" and size < len(content) and draw.random() < 0.7:  # a safetensors file: damage its header
        header = _several(draw, content[8 : 8 + size])
        return struct.pack("<Q", len(header)) + header + content[8 + size :]
    if draw.random() < 0.05:
        other = draw.choice(others)
        return (content[: draw.randrange(len(content) + 1)] + other[draw.randrange(len(other) + 1) :])[:MOST]
    return _several(draw, content)


def _several(draw: random.Random, content: bytes) -> bytes:
    for _ in range(draw.choice((1, 1, 1, 2, 3, 6))):
        content = draw.choice(MUTATIONS)(draw, content)[:MOST]
    return content


def _span(draw: random.Random, content: bytes) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(len(content), start + draw.choice((1, 2, 4, 16, 100, 1000)))


def _flip(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content or b"\0")
    for _ in range(draw.choice((1, 1, 4, 20))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _set(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content or b"\0")
    changed[draw.randrange(len(changed))] = draw.choice((0, 1, 127, 128, 255, 10, 34, 44, 91, 123))
    return bytes(changed)


def _cut(draw: random.Random, content: bytes) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _remove(draw: random.Random, content: bytes) -> bytes:
    start, end = _span(draw, content)
    return content[:start] + content[end:]


def _repeat(draw: random.Random, content: bytes) -> bytes:
    start, end = _span(draw, content)
    return content[:end] + content[start:end] * draw.choice((1, 2, 100)) + content[end:]


def _insert(draw: random.Random, content: bytes) -> bytes:
    start = draw.randrange(len(content) + 1)
    return content[:start] + draw.choice((*TEXTS, *NUMBERS, draw.randbytes(8))) + content[start:]


def _nest(draw: random.Random, content: bytes) -> bytes:
    start, (opened, closed) = draw.randrange(len(content) + 1), draw.choice(NESTS)
    depth = draw.choice((3, 90, 3000, 20_000))
    return content[:start] + opened * depth + content[start : start + 1] + closed * depth + content[start + 1 :]


def _line(draw: random.Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    start, end = draw.randrange(len(lines)), draw.randrange(len(lines))
    return b"\n".join(
        draw.choice(([*lines, lines[start]], lines[:start] + lines[start + 1 :], _swapped(lines, start, end)))
    )


def _swapped(lines: list[bytes], start: int, end: int) -> list[bytes]:
    changed = list(lines)
    changed[start], changed[end] = changed[end], changed[start]
    return changed


def _token(pattern: re.Pattern[bytes], words: Sequence[bytes], quote: bytes = b"") -> Mutation:
    def replace(draw: random.Random, content: bytes) -> bytes:
        found = list(pattern.finditer(content))
        if not found:
            return _flip(draw, content)
        match = draw.choice(found)
        new = draw.choice((quote + draw.choice(words) + quote, draw.choice(found)[0]))
        return content[: match.start()] + new + content[match.end() :]

    return replace


MUTATIONS: tuple[Mutation, ...] = (
    _flip, _set, _cut, _remove, _repeat, _insert, _nest, _line, _token(NUMBER, NUMBERS), _token(NUMBER, NUMBERS),
    _token(TEXT, TEXTS, b'"'), _token(TEXT, NUMBERS), _token(WORD, TEXTS),
)  # fmt: skip


def _archive(draw: random.Random, content: bytes) -> bytes:
    """The archive packed again with one damaged member, a renamed or doubled one, or sizes that are not its own."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    chosen = draw.randrange(len(members))
    name, inside = members[chosen]
    kind = draw.randrange(6)
    if kind == 0:
        name = draw.choice(("../up.npy", "y.npy", "data.pkl", "a" * 300, "x\x1b[2J.npy", "/abs.npy"))
    elif kind == 1:
        inside += bytes(draw.choice((1, 100, 3_000_000)))
    elif kind < 5:
        inside = _several(draw, inside)
    members[chosen] = (name, inside)
    if draw.random() < 0.1:
        members += [members[draw.randrange(len(members))]] * draw.choice((1, 50))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", draw.choice((0, 0, 8))) as archive:
        for index, (name, inside) in enumerate(members):
            archive.writestr(zipfile.ZipInfo(name if index == chosen else name.replace("\0", "")), inside)
    packed = buffer.getvalue()
    if draw.random() < 0.3:  # the directory lies about the sizes
        size = struct.pack("<I", len(members[chosen][1]))
        packed = packed.replace(size, struct.pack("<I", draw.choice((0, 1, 2**31, 2**32 - 1))))
    return packed
