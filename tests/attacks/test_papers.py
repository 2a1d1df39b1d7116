"""Every attack names the paper that describes it."""

from __future__ import annotations

from fedxray.attacks.papers import PAPERS
from fedxray.audit import catalog

FROM_UPDATES = {"attribute-from-updates", "membership-from-updates", "source-from-updates"}
OF_OURS = {"membership-loss-drop", "membership-logit-drop", "membership-best", *FROM_UPDATES}
WITHOUT_PAPER = {"dlf-redrawn", "global-model", "labels-from-metrics", "local-model-extrapolate", *OF_OURS}


def test_every_attack_has_a_citation_and_every_citation_an_attack() -> None:
    papers = {name: catalog.resolve("attacks", name).paper for name in catalog.table("attacks")}
    assert {name for name, paper in papers.items() if not paper} == WITHOUT_PAPER
    assert set(papers.values()) - {""} == PAPERS.keys()


def test_a_citation_ends_with_its_year() -> None:
    for key, citation in PAPERS.items():
        assert citation.endswith(f"{key.rpartition('-')[2]}."), key
