"""The wording of refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fedxray.errors import BadInput, Diverged, Refused, some, unknown_key, unknown_name


def test_names_that_are_near_are_offered_and_otherwise_all() -> None:
    assert "Did you mean alpha" in str(unknown_name("x", "alhpa", ["alpha", "beta"]))
    assert "Known names: alpha, beta." in str(unknown_name("x", "zzz", ["beta", "alpha"]))


@pytest.mark.parametrize(
    ("key", "known", "more", "words"),
    [
        ("roundz", ["epochs", "rounds"], {}, "a known key, got the unknown key 'roundz'. Did you mean rounds?"),
        ("zzz", ["epochs", "rounds"], {}, "a known key, got the unknown key 'zzz'. Known keys: epochs, rounds."),
        ("zzz", {"b", "a"}, {"of": "dlg"}, "a setting of dlg, got the unknown key 'zzz'. Known keys: a, b."),
        ("zzz", (), {"of": "dlg"}, "Known keys: none."),
        ("rounds", ["seeds"], {"home": "federation"}, "It belongs to [federation]."),
        ("z" * 500, ["a"], {}, f"'{'z' * 77}'..."),
    ],
)
def test_one_wording_for_unknown_keys(key: str, known: object, more: dict[str, str], words: str) -> None:
    assert words in str(unknown_key("place", key, known, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "error", [BadInput("a", expected="b", got=3, remedy="c"), Refused("a", missing="b", remedy="c")]
)
def test_a_refusal_survives_the_way_between_processes(error: Exception) -> None:
    assert str(copy.copy(error)) == str(error) and type(copy.copy(error)) is type(error)


def test_a_refusal_about_another_argument_keeps_its_type() -> None:
    moved = Diverged("rate", expected="b", got=3, remedy="c").at("attack[0].rate")
    assert type(moved) is Diverged and str(moved) == "attack[0].rate: expected b, got 3. c"


@pytest.mark.parametrize(
    ("names", "words", "wanted"),
    [
        ([], {}, "none"),
        (["a"], {"nothing": "nothing"}, "a"),
        (["a", "b", "c"], {"most": 2}, "a, b and 1 more"),
        (["a", "b", "c"], {"most": 2, "between": "; "}, "a; b; and 1 more"),
    ],
)
def test_the_first_of_many_names(names: list[str], words: dict[str, Any], wanted: str) -> None:
    assert some(names, **words) == wanted


def test_messages_are_bounded_whatever_they_quote() -> None:
    long = BadInput("x" * 5000, expected="y" * 5000, got="z" * 5000, remedy="w" * 5000)
    assert len(str(long)) < 6100 and "zzz.... www" in str(long)
    assert "n038, n039 and 312 more." in str(unknown_name("x", "zzz", [f"n{number:03}" for number in range(352)]))
