"""Audits of a run that was recorded elsewhere: how it is read, which recipe it had, and what it lacks."""
