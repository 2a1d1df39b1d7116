from __future__ import annotations

from collections import OrderedDict

import pytest

from fedxray.errors import BadInput
from fedxray.naming import load, load_factory


def test_names_and_names_inside_names() -> None:
    assert load("collections:OrderedDict") is OrderedDict
    assert load("collections:OrderedDict.fromkeys")("a") == {"a": None}
    assert load_factory("collections:OrderedDict", "x") is OrderedDict


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no-colon", '"module:function", got'),
        (":build", '"module:function", got'),
        ("collections:", '"module:function", got'),
        ("package_that_is_not_there:build", "beside the plan.*PYTHONPATH"),
        ("collections:Ordered", "a function Ordered in collections, got nothing of that name"),
        ("collections:OrderedDict.x.y", "nothing of that name"),
        ("string:digits", "a function digits in string, got str"),
    ],
)
def test_a_bad_factory_is_refused_in_one_wording(spec: str, words: str) -> None:
    with pytest.raises(BadInput, match=f"^attack.factory: .*{words}"):
        load_factory(spec, "attack.factory")
