"""Tables and figures of "Attribute Inference Attacks for Federated Regression Tasks"."""
