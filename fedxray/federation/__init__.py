"""Clients, messages and rounds: the simulation of a federation and what it leaves behind."""
