"""Guess and truth in, numbers out; how the guess was made is not known here."""
