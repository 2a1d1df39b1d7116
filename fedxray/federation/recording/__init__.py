"""A live federation on disk: written beside the training, read afterwards as a transcript."""
