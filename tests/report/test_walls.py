"""Whose a pair of pictures is."""

from __future__ import annotations

import pytest

from fedxray.report.gallery import Gallery, _place


@pytest.mark.parametrize(
    ("client", "said"), [(None, "seed 3, everyone"), (0, "seed 3, client 0"), (7, "seed 3, client 7")]
)
def test_pictures_of_an_attack_on_a_sum_are_everyones(client: int | None, said: str) -> None:
    gallery = Gallery(case="x", title="x")
    assert _place(gallery, {"x": {"seed": 3, "client": client}}) == said
    assert _place(gallery, {}) == "x"
