"""Evidence to evidence: what the raw images of an inversion look like after a prior has seen them."""
