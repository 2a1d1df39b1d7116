"""Audits of a run that was recorded elsewhere: what is told about it, what can be learnt from it, what is missing."""
