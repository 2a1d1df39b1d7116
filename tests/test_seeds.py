"""Generators forked by name: the same name gives the same draws, another name others, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, strategies as st

from fedxray.seeds import derive_seed, fork, normal_like, permutation, spell, uniform_like

NAMES = st.lists(st.integers(-3, 3) | st.text(max_size=3) | st.floats(0, 1) | st.none() | st.booleans(), max_size=4)


@given(seed=st.integers(0, 2**62), names=NAMES)
def test_a_fork_depends_on_seed_and_names_alone(seed: int, names: list[object]) -> None:
    first = torch.rand(3, generator=fork(seed, *names))
    torch.rand(5)
    assert torch.equal(first, torch.rand(3, generator=fork(seed, *names)))
    assert torch.equal(first, torch.rand(3, generator=fork(torch.Generator().manual_seed(seed), *names)))


def test_forking_a_used_generator_gives_the_same() -> None:
    root = torch.Generator().manual_seed(4)
    before = derive_seed(root, "a")
    torch.rand(10, generator=root)
    assert derive_seed(root, "a") == before == derive_seed(4, "a")


@given(left=NAMES, right=NAMES)
def test_other_names_give_other_seeds(left: list[object], right: list[object]) -> None:
    same = [spell(name) for name in left] == [spell(name) for name in right]
    assert (derive_seed(0, *left) == derive_seed(0, *right)) == same


def test_names_are_not_glued_together() -> None:
    names = [("ab", "c"), ("a", "bc"), ("abc",), (1, 2), (12,), ("1", 2)]
    assert len({derive_seed(0, *some) for some in names}) == len(names)


def test_seeds_fit_a_generator_and_never_change() -> None:
    """The value is part of what makes a stored result reproducible: a change of it is a change of every result."""
    assert 0 <= derive_seed(0, "x") < 2**63
    assert derive_seed(0, "client", 3, 7) == 4831108561602432491


def test_the_same_in_another_process() -> None:
    code = "from fedxray.seeds import derive_seed; print(derive_seed(3, 'a', {'b': 1.5, 'a': [None, True]}))"
    surroundings = {**os.environ, "PYTHONHASHSEED": "12345"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=surroundings)
    assert int(told.stdout) == derive_seed(3, "a", {"a": [None, True], "b": 1.5})


@dataclass(frozen=True)
class Settings:
    rate: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Others:
    rate: float
    names: tuple[str, ...] = ()


def test_spelling_of_settings() -> None:
    assert spell(Settings(0.1)) == spell(Settings(rate=0.1, names=())) != spell(Settings(0.2))
    assert spell(Settings(0.1)) != spell(Others(0.1))
    assert spell({"b": 1, "a": 2}) == spell({"a": 2, "b": 1}) != spell({"a": 1, "b": 2})
    assert spell([1, 2]) != spell([12]) and spell("1") != spell(1) and spell(1) != spell(True)
    assert spell(torch.zeros(2)) == spell(torch.zeros(2)) != spell(torch.zeros(2, 1))
    assert spell(torch.zeros(2)) != spell(torch.zeros(2, dtype=torch.float64)) != spell(torch.ones(2))
    assert spell(torch.arange(4).reshape(2, 2).T) == spell(torch.tensor([[0, 2], [1, 3]]))
    with pytest.raises(TypeError, match="plain values"):
        spell(object())


def test_draws_follow_the_tensor_and_the_generator() -> None:
    like = torch.zeros(1000, dtype=torch.float64)
    for draw in (normal_like, uniform_like):
        first, again = draw(like, fork(0, "d")), draw(like, fork(0, "d"))
        assert torch.equal(first, again) and first.dtype == like.dtype and first.shape == like.shape
        short = draw(like.to(torch.float16), fork(0, "d"))
        assert short.dtype == torch.float16
        torch.testing.assert_close(short.double(), first, rtol=1e-2, atol=1e-2)
    assert float(uniform_like(like, fork(0)).min()) >= 0 and float(uniform_like(like, fork(0)).max()) < 1


def test_draws_are_not_ambient() -> None:
    like = torch.zeros(4)
    expected = normal_like(like, fork(0)), permutation(9, fork(0))
    state = torch.get_rng_state()
    with torch.device("meta"):
        found = normal_like(like, fork(0)), permutation(9, fork(0))
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert torch.equal(state, torch.get_rng_state())


@given(count=st.integers(0, 50), seed=st.integers(0, 99))
def test_a_permutation_holds_every_place_once(count: int, seed: int) -> None:
    assert sorted(permutation(count, fork(seed)).tolist()) == list(range(count))
