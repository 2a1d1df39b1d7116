"""The tables and figures of "Local Model Reconstruction Attacks in Federated Learning and their Uses"."""
