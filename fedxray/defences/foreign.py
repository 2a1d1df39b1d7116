"""A site's own filter of NVFlare or mod of Flower as a defence: its very code changes every update.

A filter gets the update as a difference of models (WEIGHT_DIFF) with the number of local steps; a mod gets a model of
zeros and the update as its reply, so what it does to differences is the same. The global generators of NumPy, Python
and PyTorch, from which they draw, are seeded for the call and restored after it. Nothing is known of their formulas, so
no attack adapts to them.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedxray.defences.base import Defence, Hooks, Work, stateless
from fedxray.errors import BadInput
from fedxray.params import Params

Arrays = dict[str, Any]


def as_defence(made: Any) -> Any:
    """Return what a user's factory made, as a defence where it is a filter or a mod."""
    if isinstance(made, Defence):
        return made
    if callable(getattr(made, "process", None)):
        return ForeignDefence(subject=made, framework="NVFlare's filter", change=_through_filter)
    if callable(made) and _takes(made, 3):
        return ForeignDefence(subject=made, framework="Flower's mod", change=_through_mod)
    return made


def _takes(call: Any, count: int) -> bool:
    """Return whether something can be called with that many arguments in order."""
    try:
        inspect.signature(call).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class ForeignDefence(Defence):
    """A filter or mod, and the function that sends an update through it."""

    name: ClassVar[str] = "foreign"

    subject: Any
    framework: str
    change: Callable[[Any, Arrays, Work], Mapping[str, Any]]

    def __post_init__(self) -> None:
        """Check nothing: these are objects, not settings."""

    def hooks(self, work: Work) -> Hooks:
        """Send the update through; what is left out of it becomes zero."""
        subject = own_copy(self.subject)

        def changed(update: Params, generator: torch.Generator) -> dict[str, Tensor]:
            arrays = {name: _array(value).copy() for name, value in update.items()}
            with seeded(generator):
                answer = self.change(subject, arrays, work)
            odd = sorted(answer.keys() - update.keys())
            if odd or not answer:
                got = f"{odd[0]!r}" if odd else "no array at all"
                remedy = "It may change values or drop some arrays."
                raise BadInput("defence", expected="arrays of the update", got=got, remedy=remedy)
            return {name: _fitting(name, answer.get(name), value) for name, value in update.items()}

        return Hooks(outgoing=stateless(changed))

    def describe(self) -> str:
        """Return one line for the attacker knowledge and the report."""
        return f"{self.framework} {getattr(self.subject, '__name__', type(self.subject).__name__)}"


def own_copy(subject: Any) -> Any:
    """Return a client's own copy, as it may keep a state; what cannot be copied, as NVFlare's SVT, is shared."""
    try:
        return copy.deepcopy(subject)
    except Exception:  # noqa: BLE001  (objects of others)
        return subject


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """A block in which global draws follow from the generator."""
    before, plain_before = np.random.get_state(), random.getstate()
    seed = int(torch.randint(2**32, (), generator=generator, device="cpu"))
    with torch.random.fork_rng(devices=[]):
        np.random.seed(seed)
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            np.random.set_state(before)
            random.setstate(plain_before)


def _array(value: Tensor) -> Any:
    """Return a tensor as an array; NumPy has no bfloat16."""
    plain = value.detach().cpu()
    return (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()


def _fitting(name: str, value: Any, like: Tensor) -> Tensor:
    """Return an array as a tensor like the original, zeros where there is none."""
    if value is None:
        return torch.zeros_like(like)
    array = _array(value) if isinstance(value, Tensor) else np.asarray(value)
    if array.shape != like.shape or array.dtype.kind not in "fiub":
        expected, got = f"numbers {name!r} of shape {list(like.shape)}", f"{array.dtype} of shape {list(array.shape)}"
        raise BadInput("defence", expected=expected, got=got, remedy="A filter may change values or drop arrays.")
    return torch.from_numpy(array.astype(np.float64, order="C")).to(like)  # of any byte order and strides


def _through_filter(subject: Any, arrays: Arrays, work: Work) -> Mapping[str, Any]:
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.fl_context import FLContext

    meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: work.steps}
    sent = DXO(DataKind.WEIGHT_DIFF, data=arrays, meta=meta).to_shareable()
    answer = from_shareable(subject.process(sent, FLContext()))
    if answer.data_kind != DataKind.WEIGHT_DIFF:
        remedy = "Let the filter keep the kind of data."
        raise BadInput("defence", expected="a filter of WEIGHT_DIFF", got=answer.data_kind, remedy=remedy)
    arrays = answer.data
    return arrays


@contextmanager
def _identified() -> Iterator[None]:
    """A block in which Flower makes messages, for which the process needs an identity."""
    from flwr.supercore.task_identity import TaskIdentity

    identity: Any = TaskIdentity
    before = {name: getattr(identity, name) for name in ("_task_id", "_run_id", "_node_id")}  # public: errors if unset
    identity.task_id = identity.run_id = identity.node_id = 1
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(identity, name, value)


def _through_mod(subject: Any, arrays: Arrays, work: Work) -> Mapping[str, Any]:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

    def record(values: Arrays) -> Any:
        return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})

    def trained(message: Any, _: Any) -> Any:
        metrics = MetricRecord({"num-examples": work.examples})
        return Message(RecordDict({"arrays": record(arrays), "metrics": metrics}), reply_to=message)

    zeros = record({name: np.zeros_like(value) for name, value in arrays.items()})
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    with _identified():
        content = RecordDict({"arrays": zeros, "config": ConfigRecord({})})
        asked = Message(content, dst_node_id=1, message_type="train")
        answer = subject(asked, context, trained)
    if answer.has_error():
        raise BadInput("defence", expected="a mod that replies", got=str(answer.error), remedy="Try it in Flower.")
    replied: Mapping[str, Any] = next(iter(answer.content.array_records.values()), {})
    return {name: value.numpy() for name, value in replied.items()}
