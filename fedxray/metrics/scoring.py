"""Scoring: evidence is compared with the truth here, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from fedxray.adversary.disclose import (
    Rows,
    attribute_order,
    attribute_rows,
    membership_records,
    records_in_question,
    source_order,
    source_records,
)
from fedxray.attacks.evidence import Evidence, model_params, of_model
from fedxray.data.dataset import Records, union
from fedxray.errors import BadInput
from fedxray.federation.local import train_alone
from fedxray.federation.truth import Truth
from fedxray.lookup import load
from fedxray.losses import outputs
from fedxray.metrics.images import Lpips, class_image_scores, image_scores
from fedxray.metrics.models import Answer, Question, ask, distance_scores, fit_scores, signature, similarity
from fedxray.metrics.records import (
    Scores,
    auc,
    balanced_accuracy,
    by_subject,
    category_scores,
    continuous_scores,
    label_scores,
    mean_of,
    membership_scores,
    row_scores,
    source_shares,
)
from fedxray.metrics.table import METRICS
from fedxray.params import Params, buffers_of, parameters_of
from fedxray.seeds import derive_seed, fork, permutation

MOST_OTHERS = 999  # other images in a retrieval


@dataclass(frozen=True, kw_only=True)
class _Question:
    """The records that a guess is compared with, and what is to be computed."""

    truth: Truth
    client: int | None
    seats: tuple[int, ...]
    rows: Rows
    limit: int | None
    papers: tuple[str, ...]
    lpips: Lpips | None
    by_index: bool
    trained: bool

    def records(self) -> Records:
        records = records_in_question(self.truth, self.client, self.seats, self.rows)
        return Records(records.x[: self.limit], records.y[: self.limit])

    def kept(self, order: Tensor, client: int | None) -> Tensor:
        """Which of the mixed records are scored, [records] bool; in `order` those trained on come first."""
        held_out = order >= len(records_in_question(self.truth, client, self.seats))
        return ~held_out if self.trained else held_out


def score(
    evidence: Evidence,
    truth: Truth,
    *,
    client: int | None = None,
    seats: tuple[int, ...] = (),
    rows: Rows = "train",
    limit: int | None = None,
    papers: Sequence[str] = (),
    lpips: Lpips | None = None,
    by_index: bool = False,
    trained: bool = False,
) -> Scores:
    """Scores of a guess about one client's records; by default the client whose messages were read.

    `seats` are the colluding clients, whose records are not asked about; rows = "holdout" compares with held-out
    records, and so does rows = "mixed" a guess about both (`trained`: with those trained on instead). `limit` is the
    largest number of images or rows that reconstructions are compared with. For images, `papers` adds the variants of
    those papers ("awa": psnr_awa), `lpips` adds that distance, and `by_index` adds the scores of images paired by their
    labels instead of matched, where there are as many guesses as records.
    """
    target = evidence.target if client is None else client
    question = _Question(
        truth=truth,
        client=target,
        seats=seats or evidence.seats,
        rows=rows,
        limit=limit,
        papers=tuple(papers),
        lpips=lpips,
        by_index=by_index,
        trained=trained,
    )
    return _BY_KIND[evidence.kind](evidence, question)


def other_optimum(truth: Truth, client: int) -> Evidence:
    """The optimum of the next client as a guess of this one's: a floor for guessed models."""
    optimum = local_optimum(truth, (client + 1) % len(truth.train))
    return of_model(optimum.params, optimum.buffers)


def same_client_other_seed(truth: Truth, client: int) -> Scores:
    """Scores of the client's own optimum from other initial weights: a ceiling for guessed models.

    Its parameters need not be near, so their distance is left out.
    """
    optimum = local_optimum(truth, client, other_seed=True)
    scores = score(of_model(optimum.params, optimum.buffers), truth, client=client)
    return replace(scores, means={name: value for name, value in scores.means.items() if name != "parameter_distance"})


def _attributes(evidence: Evidence, asked: _Question) -> Scores:
    """Accuracy for a categorical column, the share within tolerance for a continuous one."""
    column = asked.truth.space.column(asked.truth.space.sensitive or "")
    records = attribute_rows(asked.truth, asked.client, asked.seats, asked.rows)
    if asked.rows == "mixed":
        kept = asked.kept(attribute_order(asked.truth, asked.client, asked.seats, "mixed"), asked.client)
        records, evidence = records.take(kept.nonzero()[:, 0].to(records.x.device)), _about(evidence, kept)
    real, guess = records.x[:, list(column.positions)], evidence.tensors["codes"].to(records.x)
    if column.kind == "continuous":
        values = continuous_scores(guess[:, 0], real[:, 0], tolerance=column.tolerance)
        return _with_formulas("attributes", values, guess[:, 0], real[:, 0])
    codes = column.candidates(records.x)
    categories = _nearest(guess, codes), _nearest(real, codes)
    scores = _with_formulas("attributes", category_scores(*categories), *categories)
    if "codes_balanced" not in evidence.tensors:
        return scores
    # A guess made for plain accuracy is no fair floor of the balanced one, so a floor may make two guesses.
    fair = balanced_accuracy(_nearest(evidence.tensors["codes_balanced"].to(records.x), codes), _nearest(real, codes))
    return scores if fair is None else replace(scores, means={**scores.means, "balanced_accuracy": fair})


def _about(evidence: Evidence, kept: Tensor) -> Evidence:
    """The guesses about some of the records in question, [records] bool."""
    tensors = {name: value[kept.to(value.device)] for name, value in evidence.tensors.items()}
    return replace(evidence, tensors=tensors)


def _nearest(values: Tensor, codes: Tensor) -> Tensor:
    """The category of every encoding, shape [records]; -1 where a guess is not finite."""
    nearest = (values[:, None] - codes[None]).abs().sum(-1).argmin(1)
    return torch.where(torch.isfinite(values).all(1), nearest, -1)


def _membership(evidence: Evidence, asked: _Question) -> Scores:
    """Scores by record and, where records have subjects, by person; by person alone for records set aside."""
    records, inside = membership_records(asked.truth, asked.client, asked.seats, asked.rows)
    guess = evidence.tensors["scores"]
    inside = inside.to(guess.device)
    scores = membership_scores(guess, inside)
    if not scores.means:
        return scores
    by_person = {} if records.subject is None else {"auc_subject": auc(*by_subject(guess, inside, records.subject)[:2])}
    if asked.rows == "others":
        return Scores(means={"auc_subject_other": by_person["auc_subject"]}, records={})
    return _with_formulas("membership", replace(scores, means={**scores.means, **by_person}), guess, inside)


def _sources(evidence: Evidence, asked: _Question) -> Scores:
    """The share of a client's records assigned to it, above that of all records (see `source_shares`).

    The mean over all clients is the share of records assigned correctly, every client counting the same; without a
    client it is returned itself.
    """
    owner = source_records(asked.truth, asked.seats, asked.rows)[1]
    if asked.rows == "mixed":
        kept = asked.kept(source_order(asked.truth, asked.seats, "mixed"), None)
        owner, evidence = owner[kept], _about(evidence, kept)
    clients = len(asked.truth.train)
    named = assigned(evidence, clients)
    shares = source_shares(named, owner).diagonal()
    if asked.client is None:
        means, own = {"accuracy": float(shares.nanmean())}, torch.ones_like(owner, dtype=torch.bool)
    else:
        own = owner == asked.client
        means = {"accuracy": float(shares[asked.client])} if bool(own.any()) else {}
    hits = named.gather(1, owner[:, None])[own, 0].to(torch.float32)
    guess, owners = named.argmax(1), torch.nn.functional.one_hot(owner, clients).to(torch.float32)
    return _with_formulas("sources", Scores(means=means, records={"accuracy": hits}), guess, owners)


def assigned(evidence: Evidence, clients: int) -> Tensor:
    """The client that each record is assigned to as 1 among 0, or its probability, float64 [records, clients]."""
    if "probabilities" in evidence.tensors:
        return evidence.tensors["probabilities"].double().cpu()
    return torch.nn.functional.one_hot(evidence.tensors["owners"].cpu(), clients).double()


def _images(evidence: Evidence, asked: _Question) -> Scores:
    """Scores of images as pixels, matched by similarity and, where requested, paired by their labels too."""
    space, records = asked.truth.space, asked.records()
    guess = space.to_pixels(evidence.tensors["inputs"].to(records.x))
    asked_about = torch.arange(len(guess), device=guess.device)
    # Images that a curious client attributes to itself are no guess about the others'.
    if "own" in evidence.tensors:
        asked_about = asked_about[~evidence.tensors["own"].to(guess.device)]
    guess = guess[asked_about]
    real, others = space.to_pixels(records.x), space.to_pixels(_others(asked))
    scores = image_scores(
        guess, real, recognised_above=space.recognised_above, others=others, papers=asked.papers, lpips=asked.lpips
    )
    assert scores.matched is not None
    places = torch.where(scores.matched >= 0, asked_about[scores.matched], -1) if len(guess) else scores.matched
    scores = replace(_with_formulas("images", scores, guess, real), matched=places)
    if not asked.by_index or len(guess) != len(real):
        return scores
    ordered = guess[_guesses_by_label(evidence, records.y)]
    in_order = image_scores(ordered, real, recognised_above=space.recognised_above, papers=asked.papers, by_index=True)
    means, by_record = {**scores.means, **in_order.means}, {**scores.records, **in_order.records}
    return replace(scores, means=means, records=by_record)


def _guesses_by_label(evidence: Evidence, labels: Tensor) -> Tensor:
    """The index of the guess of each record [records] where images are not matched by similarity.

    Labels are granted in random order, so guesses are ordered by their labels, those of equal labels in their order.
    Where guesses have other labels than the records, or none, their own order is used.
    """
    guessed = evidence.tensors.get("labels")
    in_order = torch.arange(len(labels), device=labels.device)
    if guessed is None or not torch.equal(guessed.to(labels).sort().values, labels.sort().values):
        return in_order
    by_label = torch.empty_like(in_order)
    by_label[labels.argsort(stable=True)] = guessed.to(labels).argsort(stable=True)
    return by_label


def _class_images(evidence: Evidence, asked: _Question) -> Scores:
    space, records = asked.truth.space, asked.records()
    guess = space.to_pixels(evidence.tensors["inputs"].to(records.x))
    labels = evidence.tensors["labels"].to(records.y.device)
    # Public images are left out: some floors are such images, which would be their own nearest neighbours.
    everyone = union((*asked.truth.train, *asked.truth.holdout))
    known = space.to_pixels(everyone.x.to(records.x)), everyone.y.to(records.y.device)
    return class_image_scores(guess, labels, space.to_pixels(records.x), records.y, known)


def _others(asked: _Question) -> Tensor:
    """Images of the same data set that are not asked about: public ones, held-out ones, then other clients'."""
    truth, client = asked.truth, asked.client
    pools = [truth.public.x]
    for rows, source in (("holdout", truth.holdout), ("train", truth.train)):
        for owner, records in enumerate(source):
            if rows != asked.rows or (client is not None and owner != client):
                pools.append(records.x)
    return torch.cat(pools)[:MOST_OTHERS]


def _labels(evidence: Evidence, asked: _Question) -> Scores:
    counts = torch.bincount(asked.records().y, minlength=len(asked.truth.space.classes))
    guess = evidence.tensors["counts"].to(counts.device)
    return _with_formulas("labels", label_scores(guess, counts), guess, counts)


def _model(evidence: Evidence, asked: _Question) -> Scores:
    """Distance to the client's optimum, fit to its records, and Zest."""
    if asked.client is None:
        raise BadInput(
            "client", expected="the client whose model was guessed", got="none", remedy="Name it: client = 0."
        )
    truth, client, (params, buffers) = asked.truth, asked.client, model_params(evidence)
    answer = partial(outputs, truth.model, params, buffers)
    records, best = asked.records(), local_optimum(truth, client)
    question, wanted = _explained(truth, client)
    everyone = union(truth.train).y
    means = {
        **distance_scores(params, best.params),
        **fit_scores(answer(records.x), records.y, truth.recipe.loss, truth.space, everyone),
    }
    if len(question.references):
        means["zest"] = similarity(signature(answer, question), wanted)
    return Scores(means=means, records={})


_signatures: WeakKeyDictionary[Truth, dict[int, tuple[Question, Tensor]]] = WeakKeyDictionary()


def _explained(truth: Truth, client: int) -> tuple[Question, Tensor]:
    """The inputs for explanations of this client's models, and the signature of its optimum; computed once."""
    known = _signatures.setdefault(truth, {})
    if client not in known:
        best, everyone = local_optimum(truth, client), union(truth.train).x
        draws = fork(truth.seed, "explanations", client)
        question = ask(truth.train[client].x, everyone, truth.space, draws)
        answer: Answer = partial(outputs, truth.model, best.params, best.buffers)
        known[client] = question, signature(answer, question)
    return known[client]


def _rows(evidence: Evidence, asked: _Question) -> Scores:
    records = asked.records()
    guess = evidence.tensors["inputs"].to(records.x)
    return _with_formulas("rows", row_scores(guess, records.x, asked.truth.space.columns), guess, records.x)


def _with_formulas(kind: str, scores: Scores, guess: Tensor, truth: Tensor) -> Scores:
    """The scores with every metric of this kind that has a formula of its own in the table."""
    means, by_record = dict(scores.means), dict(scores.records)
    for name, entry in METRICS.items():
        if not entry.formula or kind not in entry.kinds:
            continue
        value = load(entry.formula)(guess, truth)
        if isinstance(value, Tensor) and value.ndim:  # one value for each true record
            by_record[name] = value
            value = mean_of(value)
        if value is not None and math.isfinite(value):
            means[name] = float(value)
    return replace(scores, means=means, records=by_record)


_BY_KIND: dict[str, Callable[[Evidence, _Question], Scores]] = {
    "attributes": _attributes,
    "membership": _membership,
    "sources": _sources,
    "images": _images,
    "class-images": _class_images,
    "rows": _rows,
    "labels": _labels,
    "model": _model,
}


# The optimum of a client, reached by training alone: a reconstructed local model is compared with it

STEPS = 600
RATES = (0.01, 0.1, 1.0, 10.0)  # large ones serve targets in dollars
MOST_HELD = 64  # optima kept in memory


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """Parameters of lowest training loss, and the running statistics that go with them."""

    params: dict[str, Tensor]
    buffers: dict[str, Tensor]


_optima: dict[int, Optimum] = {}  # the last few, keyed by content: no defence changes a client's optimum


def local_optimum(truth: Truth, client: int, *, other_seed: bool = False) -> Optimum:
    """The model of lowest training loss by full-batch Adam, from the run's initial weights or those of another seed."""
    records, start, buffers = truth.train[client], parameters_of(truth.model), buffers_of(truth.model)
    name = "local optimum of another seed" if other_seed else "local optimum"
    network = (repr(truth.model), truth.recipe.loss, start, buffers)
    key = derive_seed(0, name, *network, records.x, records.y, truth.seed, client)
    if key not in _optima:
        generator = fork(truth.seed, name, client)
        alone = train_alone(
            truth.model,
            truth.recipe.loss,
            records,
            shuffled(start, generator) if other_seed else start,
            buffers,
            steps=STEPS,
            rates=RATES,
            generator=generator,
        )
        while len(_optima) >= MOST_HELD:
            _optima.pop(next(iter(_optima)))
        _optima[key] = Optimum(params=alone.outcome.best, buffers=alone.buffers)
    return _optima[key]


def shuffled(start: Params, generator: torch.Generator) -> dict[str, Tensor]:
    """Initial weights as another seed might have drawn them: the entries of every tensor in another order.

    The initial weights of a layer are independent draws from one distribution, so only their order depends on the seed.
    """
    return {
        name: value.flatten()[permutation(value.numel(), fork(generator, name)).to(value.device)].reshape(value.shape)
        for name, value in start.items()
    }
