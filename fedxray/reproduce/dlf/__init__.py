"""The tables of "Data Leakage in Federated Averaging"."""
