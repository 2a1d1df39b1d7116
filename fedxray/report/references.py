"""Where attacks, measures, defences and statistics come from, for the method notes of a report."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fedxray.report import words
from fedxray.report.catalogue import attack_source
from fedxray.report.plans import attack_names, parts, plans_of

# By what the header of an attack names: its authors with the year, or one of five papers by number.
ATTACK_PAPERS: Mapping[str, str] = {
    r"Zhu, Liu and Han 2019": "Zhu, Liu, Han: Deep Leakage from Gradients. NeurIPS 2019.",
    r"Zhao(, Mopuri and Bilen| et al\.) 2020": "Zhao, Mopuri, Bilen: iDLG: Improved Deep Leakage from Gradients. "
    "arXiv 2001.02610, 2020.",
    r"Geiping": "Geiping, Bauermeister, Dröge, Moeller: Inverting Gradients: How easy is it to break privacy in "
    "federated learning? NeurIPS 2020.",
    r"Yin, Mallya": "Yin, Mallya, Vahdat, Alvarez, Kautz, Molchanov: See through Gradients: Image Batch Recovery via "
    "GradInversion. CVPR 2021.",
    r"TabLeak": "Vero, Balunović, Dimitrov, Vechev: TabLeak: Tabular Data Leakage in Federated Learning. ICML 2023.",
    r"Dimitrov(, Balunović| et al)|papers? 001": "Dimitrov, Balunović, Konstantinov, Vechev: Data Leakage in "
    "Federated Averaging. TMLR 2022.",
    r"Geng et al": "Geng et al.: Towards General Deep Leakage in Federated Learning. arXiv 2110.09074, 2021.",
    r"Ma et al": "Ma et al.: Instance-wise Batch Label Restoration via Gradients in Federated Learning. ICLR 2023.",
    r"Lyu and Chen": "Lyu, Chen: A Novel Attribute Reconstruction Attack in Federated Learning. "
    "arXiv 2108.06910, 2021.",
    r"Yeom et al": "Yeom, Giacomelli, Fredrikson, Jha: Privacy Risk in Machine Learning: Analyzing the Connection to "
    "Overfitting. CSF 2018.",
    r"Fredrikson, Jha": "Fredrikson, Jha, Ristenpart: Model Inversion Attacks that Exploit Confidence Information and "
    "Basic Countermeasures. CCS 2015.",
    r"Hu et al": "Hu, Salcic, Sun, Dobbie, Zhang: Source Inference Attacks in Federated Learning. ICDM 2021.",
    r"papers?[^.]{0,20}\b000": "Driouich, Xu, Neglia, Giroire, Thomas: Local Model Reconstruction Attacks in Federated "
    "Learning and their Uses.",
    r"Song, Wang and Zuazua|papers?[^.]{0,20}\b002": "Song, Wang, Zuazua: Approximate and Weighted Data Reconstruction "
    "Attack in Federated Learning. arXiv 2308.06822, 2023.",
    r"Xu, Hong, Huang": "Xu, Hong, Huang, Chen, Decouchant: AGIC: Approximate Gradient Inversion Attack on Federated "
    "Learning. arXiv 2204.13784, 2022.",
    r"papers?[^.]{0,20}\b003": "Diana, Marfoq, Xu, Neglia, Giroire, Thomas: Attribute Inference Attacks for Federated "
    "Regression Tasks. AAAI 2025.",
    r"papers?[^.]{0,20}\b004": "Federated Learning Nodes Can Reconstruct Peers' Image Data.",
}
METRIC_PAPERS: Mapping[str, str] = {
    "ssim": "Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural "
    "Similarity. IEEE Transactions on Image Processing 13, 2004.",
    "class_ssim": "Wang, Bovik, Sheikh, Simoncelli: Image Quality Assessment: From Error Visibility to Structural "
    "Similarity. IEEE Transactions on Image Processing 13, 2004.",
    "lpips": "Zhang, Isola, Efros, Shechtman, Wang: The Unreasonable Effectiveness of Deep Features as a Perceptual "
    "Metric. CVPR 2018.",
    "tpr_at_1pct_fpr": "Carlini, Chien, Nasr, Song, Terzis, Tramèr: Membership Inference Attacks From First "
    "Principles. IEEE Symposium on Security and Privacy 2022.",
    "zest": "Jia, Chen, Guan, Shamsabadi, Papernot: A Zest of LIME: Towards Architecture-Independent Model Distances. "
    "ICLR 2022.",
}
DEFENCE_PAPERS: Mapping[str, str] = {
    "dp-sgd": "Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: Deep Learning with Differential Privacy. "
    "CCS 2016.",
    "mixup": "Zhang, Cisse, Dauphin, Lopez-Paz: mixup: Beyond Empirical Risk Minimization. ICLR 2018.",
    "local-bn": "Li, Jiang, Zhang, Kamp, Dou: FedBN: Federated Learning on Non-IID Features via Local Batch "
    "Normalization. ICLR 2021.",
}
STATISTICS = (
    "Student: The Probable Error of a Mean. Biometrika 6, 1908.",
    "Efron, Tibshirani: An Introduction to the Bootstrap. Chapman and Hall, 1993.",
    "Cameron, Gelbach, Miller: Bootstrap-Based Improvements for Inference with Clustered Errors. Review of Economics "
    "and Statistics 90, 2008.",
    "Holm: A Simple Sequentially Rejective Multiple Test Procedure. Scandinavian Journal of Statistics 6, 1979.",
)


def attack_papers(name: str) -> list[str]:
    """The papers that the header of an attack in the catalogue names."""
    text = attack_source(name)
    return [paper for sign, paper in ATTACK_PAPERS.items() if re.search(sign, text)]


def references(document: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Pairs of what was used and the papers behind it, as far as there are any."""
    names, found = attack_names(document), []
    for label in dict.fromkeys(case["attack"] for case in document["cases"]):
        found.append((label, attack_papers(names.get(label, label))))
    defences = [
        str(part.get("name")) for plan in plans_of(document).values() for part in parts(plan, "defence")
    ]
    for part in dict.fromkeys(one for name in defences for one in name.split("+")):
        found.append((part, [DEFENCE_PAPERS[part]] if part in DEFENCE_PAPERS else []))
    for metric in dict.fromkeys(words.base_metric(row["metric"] or "") for row in document["summary"]):
        found.append((metric, [METRIC_PAPERS[metric]] if metric in METRIC_PAPERS else []))
    return [(name, papers) for name, papers in found if papers] + [
        ("intervals and verdicts", list(STATISTICS))
    ]
