"""The figures of "Federated Learning Nodes Can Reconstruct Peers' Image Data"."""
