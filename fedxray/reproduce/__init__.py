"""Published tables, reproduced: each is a small description, its plans are ordinary audits."""
