"""Tables and figures of "Approximate and Weighted Data Reconstruction Attack in Federated Learning"."""
