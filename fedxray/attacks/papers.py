"""The papers behind the attacks: key -> citation. Every attack names its paper by key (`Attack.paper`).

Imports nothing, so that whatever prints citations need not import an attack.
"""

from __future__ import annotations

PAPERS: dict[str, str] = {
    "curious-client-2024": "Federated Learning Nodes Can Reconstruct Peers' Image Data. 2024.",
    "diana-2025": "Diana, Marfoq, Xu, Neglia, Giroire, Thomas: Attribute Inference Attacks for Federated Regression "
    "Tasks. AAAI 2025.",
    "dimitrov-2022": "Dimitrov, Balunović, Konstantinov, Vechev: Data Leakage in Federated Averaging. TMLR 2022.",
    "driouich-2022": "Driouich, Xu, Neglia, Giroire, Thomas: Local Model Reconstruction Attacks in Federated Learning "
    "and their Uses. 2022.",
    "fredrikson-2015": "Fredrikson, Jha, Ristenpart: Model Inversion Attacks that Exploit Confidence Information and "
    "Basic Countermeasures. CCS 2015.",
    "geiping-2020": "Geiping, Bauermeister, Dröge, Moeller: Inverting Gradients: How easy is it to break privacy in "
    "federated learning? NeurIPS 2020.",
    "geng-2021": "Geng et al.: Towards General Deep Leakage in Federated Learning. arXiv 2110.09074, 2021.",
    "gu-2022": "Gu, Bai, Xu: CS-MIA: Membership Inference Attack Based on Prediction Confidence Series in Federated "
    "Learning. Journal of Information Security and Applications 67, 2022.",
    "hu-2021": "Hu, Salcic, Sun, Dobbie, Zhang: Source Inference Attacks in Federated Learning. ICDM 2021.",
    "li-2023": "Li, Li, Ribeiro: Effective Passive Membership Inference Attacks in Federated Learning against "
    "Overparameterized Models. ICLR 2023.",
    "lyu-2021": "Lyu, Chen: A Novel Attribute Reconstruction Attack in Federated Learning. arXiv 2108.06910, 2021.",
    "ma-2023": "Ma et al.: Instance-wise Batch Label Restoration via Gradients in Federated Learning. ICLR 2023.",
    "song-2023": "Song, Wang, Zuazua: Approximate and Weighted Data Reconstruction Attack in Federated Learning. "
    "arXiv 2308.06822, 2023.",
    "vero-2023": "Vero, Balunović, Dimitrov, Vechev: TabLeak: Tabular Data Leakage in Federated Learning. ICML 2023.",
    "watson-2022": "Watson, Guo, Cormode, Sablayrolles: On the Importance of Difficulty Calibration in Membership "
    "Inference Attacks. ICLR 2022.",
    "wu-2024": "Wu et al.: FedInverse: Evaluating Privacy Leakage in Federated Learning. ICLR 2024.",
    "xu-2022": "Xu, Hong, Huang, Chen, Decouchant: AGIC: Approximate Gradient Inversion Attack on Federated Learning. "
    "arXiv 2204.13784, 2022.",
    "yeom-2018": "Yeom, Giacomelli, Fredrikson, Jha: Privacy Risk in Machine Learning: Analyzing the Connection to "
    "Overfitting. CSF 2018.",
    "yin-2021": "Yin, Mallya, Vahdat, Alvarez, Kautz, Molchanov: See through Gradients: Image Batch Recovery via "
    "GradInversion. CVPR 2021.",
    "zhao-2020": "Zhao, Mopuri, Bilen: iDLG: Improved Deep Leakage from Gradients. arXiv 2001.02610, 2020.",
    "zhu-2019": "Zhu, Liu, Han: Deep Leakage from Gradients. NeurIPS 2019.",
    "zhu-2023": "Zhu, Yao, Blaschko: Surrogate Model Extension (SME): A Fast and Accurate Weight Update Attack on "
    "Federated Learning. ICML 2023.",
    "zhu-2025": 'Zhu et al.: FedMIA: An Effective Membership Inference Attack Exploiting "All for One" Principle in '
    "Federated Learning. CVPR 2025.",
}
