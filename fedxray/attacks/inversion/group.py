"""What several guesses of the same images agree on."""

from __future__ import annotations

import torch
from torch import Tensor

from fedxray.imaging import assignment


def consensus(guesses: Tensor, labels: Tensor) -> Tensor:
    """The mean of corresponding images over all guesses [guesses, examples, ...], in the place of each; shape kept.

    Image i of every guess has label i [examples]; those of one label are first matched to the first guess, one to
    one, so that the squared distances are smallest.
    """
    places = torch.stack([matched_places(guesses[0], one, labels) for one in guesses])  # [guesses, examples]
    aligned = torch.stack([one[place] for one, place in zip(guesses, places, strict=True)])
    mean = aligned.mean(0)
    back = places.argsort(1)  # where each image went
    return torch.stack([mean[place] for place in back])


def matched_places(reference: Tensor, guess: Tensor, labels: Tensor) -> Tensor:
    """For each image of the reference [examples, ...] the place of its partner of the same label; shape [examples]."""
    places = torch.arange(len(labels), device=reference.device)
    for label in labels.unique().tolist():
        group = (labels == label).nonzero()[:, 0]
        if len(group) > 1:
            apart = torch.cdist(reference[group].flatten(1), guess[group].flatten(1)) ** 2
            rows, columns = assignment(-apart)
            places[group[rows]] = group[columns]
    return places
