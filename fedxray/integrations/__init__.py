"""Recorders and importers for live federations."""
