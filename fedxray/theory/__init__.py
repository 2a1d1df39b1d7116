"""The papers' bounds as functions, with the corrections that checking them brought."""
