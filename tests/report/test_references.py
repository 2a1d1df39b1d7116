"""Papers behind what a report speaks of."""

from __future__ import annotations

import re

from fedxray.audit.catalog import ATTACKS
from fedxray.report.setup import attack_papers
from fedxray.report.words import attack_source


def test_an_attack_whose_header_names_a_preprint_cites_it() -> None:
    named = {name: re.findall(r"arXiv (\d{4}\.\d{5})", attack_source(name)) for name in ATTACKS}
    assert named["awa"] == ["2308.06822"] and named["agic"] == ["2204.13784"]
    for name, numbers in named.items():
        cited = " ".join(attack_papers(name))
        assert all(number in cited for number in numbers), (name, cited)
