"""Papers behind what a report speaks of."""

from __future__ import annotations

from fedxray.report.setup import references
from tests.report.synthetic import STORIES, make_cases, make_document


def test_the_paper_of_an_attack_comes_from_the_results() -> None:
    document = make_document(make_cases(STORIES[2:3]))
    document["attacks"]["membership-loss"]["paper"] = "Yeom et al.: Privacy Risk in Machine Learning. CSF 2018."
    cited = dict(references(document))
    assert cited["membership-loss"] == ["Yeom et al.: Privacy Risk in Machine Learning. CSF 2018."]
    document["attacks"]["membership-loss"]["paper"] = None
    assert "membership-loss" not in dict(references(document))
    assert "dp-sgd" in cited and "intervals and verdicts" in cited
