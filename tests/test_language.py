"""Plain technical English: words that were replaced by standard terms must not come back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "fedxray").rglob("*.py"))
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "docs/papers/*.md", "examples/**/*.md", "fedxray/report/templates/*")
    for path in ROOT.glob(pattern)
)

# What to say in their place stands behind each of them.
SENTENCES = {
    r"told|tells?|telling": "given, reported, known, inferred, distinguished",
    r"heard|hears?": "receives, reports",
    r"rightly": "correctly",
    r"reckon\w*": "compute, estimate",
    r"seams?": "hook",
    r"taken for|took for|takes? \w+ for": "assume, treat as",
    r"so many": "N, the number of",
    r"whoever|nobody|somebody": "name the person or role",
    r"likeness": "similarity",
    r"usefulness": "utility",
    r"mends?|mended|mending": "fix",
    r"obituary": "exit reason",
    r"g(?:oes|o|one|oing) on with": "resume, continue",
    r"c(?:omes?|ame) to nothing": "failed",
    r"(?:did|does) not end well": "failed, diverged, cut off",
    r"someone on the line|on the line who": "network eavesdropper",
    r"she|hers?": "the client, it",
    r"paper 00[0-4]": "author and year",
}
NAMES = re.compile(r"^(told|heard|seams?|reckon\w*|rightly|likeness|usefulness|obituary|whoever|nobody)$")
WORDS = re.compile(rf"\b(?:{'|'.join(SENTENCES)})\b", re.IGNORECASE)


def complaint(word: str) -> str:
    """The word with what to say instead."""
    said = next(instead for pattern, instead in SENTENCES.items() if re.fullmatch(pattern, word, re.IGNORECASE))
    return f"{word!r} (say: {said})"


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every comment and string of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start[0], token.string


def names(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of everything that a module defines or binds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id


def parts(name: str) -> list[str]:
    """The words of an identifier, in small letters."""
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def findings_in_module(source: str) -> list[str]:
    """Old words in the sentences and names of a module."""
    said = [
        f"line {line}: {complaint(match.group())}" for line, text in sentences(source) for match in WORDS.finditer(text)
    ]
    named = [
        f"line {line}: the name {name}"
        for line, name in names(source)
        if any(NAMES.match(part) for part in parts(name))
    ]
    return said + named


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules_use_standard_terms(path: Path) -> None:
    assert findings_in_module(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_use_standard_terms(path: Path) -> None:
    found = [
        f"line {number}: {complaint(match.group())}"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in WORDS.finditer(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""What the server is told."""\n', "told"),
        ("told_late = 1\n", "told_late"),
        ("x = 1  # reckoned anew\n", "reckoned"),
        ("class Obituary:\n    pass\n", "Obituary"),
        ('print("Nobody answered")\n', "Nobody"),
    ],
)
def test_an_old_word_is_found(source: str, expected: str) -> None:
    assert any(expected in finding for finding in findings_in_module(source))


def test_standard_terms_pass() -> None:
    assert findings_in_module('"""Returns the settings known to the attacker."""\nfoundation = seamless = 1\n') == []
