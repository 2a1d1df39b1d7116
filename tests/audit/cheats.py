"""Attacks that look for the answer in thirteen places, as a careless or dishonest user might write them."""

from __future__ import annotations

import fcntl
import gc
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedxray.adversary.view import View
from fedxray.attacks.base import Attack, Context, global_models, granted
from fedxray.attacks.evidence import Evidence, of_membership
from fedxray.attacks.local_model.active import LocalModelSendBack
from fedxray.attacks.local_model.baselines import LastReturned
from fedxray.attacks.membership import MembershipLoss
from fedxray.audit.plan import read_plan
from fedxray.audit.run.prepare import prepare
from fedxray.data.dataset import Space
from fedxray.defences.base import Defence, Hooks, KnownDefence, Work
from fedxray.errors import Refused
from fedxray.federation.setting import Federation
from fedxray.federation.transcript import Transcript
from fedxray.federation.truth import Truth
from fedxray.metrics import records as formulas
from fedxray.models import build
from fedxray.params import parameters_of, same_values
from fedxray.seeds import fork, permutation
from tests.contract.reach import reachable


@dataclass(frozen=True, kw_only=True)
class Cheat(Attack):
    """Membership by looking up the answer; without one all scores are equal."""

    name: ClassVar[str] = "cheat"
    kind: ClassVar[Any] = "membership"
    roles: ClassVar[tuple[str, ...]] = ("server",)
    grants: ClassVar[tuple[str, ...]] = ("target-records",)
    requires: ClassVar[Any] = (granted("target-records"), global_models())
    floors: ClassVar[tuple[str, ...]] = ("chance",)
    way: str
    folder: str = ""  # of the audit, which whoever writes the plan knows

    def attack(self, view: View, context: Context) -> Evidence:
        """Return scores by the answer, where this way leads to it."""
        records = view.grants.target_records
        assert records is not None
        found = WAYS[self.way](view, context, Path(self.folder))
        return of_membership(torch.zeros(len(records)) if found is None else found)


def cheat(way: str, folder: str = "") -> Attack:
    """The attack of a plan."""
    if way == "subclass tricks":
        return Disguised(way=way)
    return Cheat(way=way, folder=folder)


@dataclass(frozen=True, kw_only=True)
class Disguised(Cheat):
    """A class that claims to be one of fedxray's own."""

    __module__ = "fedxray.attacks.membership"


def by_content(view: View, train: Any) -> Tensor | None:
    """Whether each granted record is among the client's training records."""
    target, granted_records = view.target or 0, view.grants.target_records
    assert granted_records is not None
    if target >= len(train):  # of another federation in this process
        return None
    own = {tuple(row) for row in train[target].x.flatten(1).tolist()}
    found = torch.tensor([float(tuple(row) in own) for row in granted_records.x.flatten(1).tolist()])
    return found if found.any() else None


def in_objects(view: View, objects: Iterator[Any]) -> Tensor | None:
    """The answer by a truth or a federation among some objects."""
    for thing in objects:
        if type(thing) in (Truth, Federation) and vars(thing):
            found = by_content(view, vars(thing)["train" if type(thing) is Truth else "clients"])
            if found is not None:
                return found
    return None


def by_gc(view: View, context: Context, folder: Path) -> Tensor | None:
    return in_objects(view, iter(gc.get_objects()))


def by_frames(view: View, context: Context, folder: Path) -> Tensor | None:
    def values() -> Iterator[Any]:
        frame: Any = sys._getframe()
        while frame is not None:
            for value in list(frame.f_locals.values()):
                yield value
                yield from list(getattr(value, "__dict__", {}).values())
            frame = frame.f_back

    return in_objects(view, values())


def by_closures(view: View, context: Context, folder: Path) -> Tensor | None:
    found = list(reachable(view))
    assert not any(isinstance(thing, Transcript) for thing in found)
    return in_objects(view, iter(found))


def by_files(view: View, context: Context, folder: Path) -> Tensor | None:
    """What the store holds of other cases is read; the plan's data are in "plan"."""
    cases = folder / "private" / "cases"
    return torch.ones(len(view.grants.target_records or ())) if list(cases.glob("*.journal")) else None


def by_plan(view: View, context: Context, folder: Path) -> Tensor | None:
    plan = read_plan(folder / "plan.toml")
    return by_content(view, prepare(plan, "none", plan.seeds[0]).federation.clients)


def by_memory(view: View, context: Context, folder: Path) -> Tensor | None:
    """Members are in more places of a process that has trained on them, also in memory that is free again."""
    assert view.grants.target_records is not None
    rows = [row.numpy().tobytes() for row in view.grants.target_records.x.flatten(1)]
    counts = torch.zeros(len(rows))
    with Path("/proc/self/maps").open() as maps, Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            place, rights, *_ = line.split()
            start, end = (int(number, 16) for number in place.split("-"))
            if rights.startswith("rw") and "[v" not in line:
                memory.seek(start)
                content = memory.read(end - start)
                counts += torch.tensor([float(content.count(row)) for row in rows])
    return counts


def by_seeds(view: View, context: Context, folder: Path) -> Tensor | None:
    """The seed is the one whose initial weights were sent first; from it the order of members was drawn."""
    first = dict(view.globals[0].params)
    for seed in range(1000):
        model = build("mlp", view.space, generator=fork(seed, "model"), hidden=[4])
        if same_values(parameters_of(model), first):
            count = len(view.grants.target_records or ())
            return -permutation(count, fork(seed, "membership", view.target)).float()
    raise AssertionError("the seed was not found, so this tests nothing")


def perfect(*_: Any, **__: Any) -> float:
    return 1.0


def by_scorer(view: View, context: Context, folder: Path) -> Tensor | None:
    formulas.auc = perfect  # type: ignore[assignment]
    return None


def by_memo(view: View, context: Context, folder: Path) -> Tensor | None:
    """A forged answer of another attack, which others would then read from the store."""
    forged = LastReturned().run(view, generator=context.root)
    for value in forged.tensors.values():
        value.zero_()
    context.memo(LastReturned(), view, lambda: forged)
    return in_objects(view, reachable(context.memo))


def by_environment(view: View, context: Context, folder: Path) -> Tensor | None:
    os.environ["FEDXRAY_CHEATED"] = "yes"
    torch.set_default_dtype(torch.float64)
    sys.modules["fedxray.metrics.records"].auc = perfect  # type: ignore[attr-defined]
    return None


def by_shared_memory(view: View, context: Context, folder: Path) -> Tensor | None:
    for thing in (*reachable(view.grants), *view.model.parameters(), *view.observations[0].start.values()):
        if isinstance(thing, Tensor):
            thing.data.zero_()
    return None


def by_threads(view: View, context: Context, folder: Path) -> Tensor | None:
    def later() -> None:
        formulas.auc = perfect  # type: ignore[assignment]

    thread = threading.Thread(target=later, daemon=True)
    thread.start()
    thread.join()
    return None


class Spy(Tensor):
    """Scores that look at what they are compared with: the first ones asked for are those of members."""

    calls = 0

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [arg.as_subclass(Tensor) if isinstance(arg, Spy) else arg for arg in args]
        if function is Tensor.__getitem__ and isinstance(plain[1], Tensor) and plain[1].dtype == torch.bool:
            cls.calls += 1
            return torch.full((int(plain[1].sum()),), float(cls.calls % 2))
        return super().__torch_function__(function, types, args, kwargs or {})


def by_subclass(view: View, context: Context, folder: Path) -> Tensor | None:
    return torch.arange(len(view.grants.target_records or ())).float().flip(0).as_subclass(Spy)


WAYS: dict[str, Callable[[View, Context, Path], Tensor | None]] = {
    "gc": by_gc,
    "frames": by_frames,
    "closures": by_closures,
    "files": by_files,
    "seeds": by_seeds,
    "scorer": by_scorer,
    "memo": by_memo,
    "environment": by_environment,
    "shared memory": by_shared_memory,
    "plan": by_plan,
    "memory": by_memory,
    "threads": by_threads,
    "subclass tricks": by_subclass,
}


# Attacks that end badly, and one that talks to the clients


@dataclass(frozen=True, kw_only=True)
class Ending(Cheat):
    """An attack that ends in this way."""

    def attack(self, view: View, context: Context) -> Evidence:
        """End."""
        if self.way == "raise":
            raise ZeroDivisionError("by nothing")
        if self.way == "refuse":
            raise Refused("cheat", missing="luck", remedy="Try again.")
        if self.way == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.way == "kill the server":
            os.kill(os.getppid(), signal.SIGKILL)
        if self.way.startswith("stop the server"):
            os.kill(os.getppid(), signal.SIGSTOP)
        if self.way in ("hang", "kill the server", "stop the server and hang"):
            while True:
                pass
        if self.way in ("stay", "stay apart"):
            stay(Path(self.folder) / "held", apart=self.way == "stay apart")
        if self.way in ("stay", "stay apart", "stop the server"):
            return of_membership(torch.zeros(len(view.grants.target_records or ())))
        if self.way == "leave":
            os._exit(3)
        if self.way == "nan":
            return of_membership(torch.full((len(view.grants.target_records or ()),), torch.nan), curve=(1.0, math.nan))
        return of_membership("nothing")  # type: ignore[arg-type]


def stay(path: Path, *, apart: bool) -> None:
    """Leave a process behind that holds a lock, perhaps in a session of its own."""
    ready, told = os.pipe()
    if os.fork() == 0:
        try:
            if apart:
                os.setsid()
            handle = os.open(path, os.O_RDWR | os.O_CREAT)
            os.write(handle, str(os.getpid()).encode())
            fcntl.flock(handle, fcntl.LOCK_EX)
            os.write(told, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.read(ready, 1)


def ending(way: str, folder: str = "") -> Attack:
    """The attack of a plan."""
    return Ending(way=way, folder=folder)


KEPT: list[Tensor] = []  # batches that a defence has seen


@dataclass(frozen=True, kw_only=True)
class Curious(Defence):
    """A defence that keeps what passes through it."""

    name: ClassVar[str] = "curious"

    def hooks(self, work: Work) -> Hooks:
        """Keep every update."""

        def outgoing(update: Any, state: Any, generator: Any) -> Any:
            KEPT.append(torch.zeros(1))
            return update, state

        return Hooks(outgoing=outgoing)

    def describe(self) -> str:
        """Its words."""
        return "keeps updates"


def curious() -> Defence:
    """The defence of a plan."""
    return Curious()


@dataclass(frozen=True, kw_only=True)
class Hanging(Curious):
    """A defence whose hooks never return."""

    def hooks(self, work: Work) -> Hooks:
        """Wait for a signal that never comes."""
        while True:
            signal.pause()


def hanging() -> Defence:
    """The defence of a plan."""
    return Hanging()


@dataclass(frozen=True, kw_only=True)
class Patching(Curious):
    """A defence that changes the scorer of the process in which it is asked."""

    in_hooks: bool = False

    def hooks(self, work: Work) -> Hooks:
        """Change nothing of a client's work."""
        if self.in_hooks:
            formulas.auc = perfect  # type: ignore[assignment]
        return Hooks(known=KnownDefence())

    def describe(self) -> str:
        """Its words, after the change."""
        formulas.auc = perfect  # type: ignore[assignment]
        return "patches\x1b[2J"


def patching(in_hooks: bool = False) -> Defence:
    """The defence of a plan."""
    return Patching(in_hooks=in_hooks)


@dataclass(frozen=True, kw_only=True)
class SendBack(LocalModelSendBack):
    """An active attack of the user's."""


@dataclass(frozen=True, kw_only=True)
class OwnLoss(MembershipLoss):
    """An attack of fedxray's as the user's."""


def own_loss() -> Attack:
    """The attack of a plan."""
    return OwnLoss()


def send_back() -> Attack:
    """The attack of a plan."""
    return SendBack(**SendBack.small)


# Code that prints what a terminal would act upon

STEERING = "\x1b[2J\x1b]0;title\x07\x9b31m"


@dataclass(frozen=True, kw_only=True)
class Printing(Cheat):
    """An attack that prints, through Python and past it."""

    def attack(self, view: View, context: Context) -> Evidence:
        """Print, then guess."""
        print(f"{STEERING} by print")
        os.write(1, f"{STEERING} by write\n".encode())
        print("begun", end="", file=sys.stderr)
        if self.way == "much":
            print("\n".join("again" for _ in range(100_000)))
        return of_membership(torch.zeros(len(view.grants.target_records or ())))


def printing(way: str = "little") -> Attack:
    """The attack of a plan; this prints too."""
    print(f"{STEERING} in a factory")
    return Printing(way=way)


@dataclass(frozen=True, kw_only=True)
class PrintingDefence(Curious):
    """A defence that prints."""

    def hooks(self, work: Work) -> Hooks:
        """Print."""
        print(f"{STEERING} in hooks", end="", file=sys.stderr)
        return Hooks()


def printing_defence() -> Defence:
    """The defence of a plan."""
    return PrintingDefence()


class PrintingNetwork(torch.nn.Linear):
    """A network that prints."""

    def forward(self, x: Tensor) -> Tensor:
        """Print and compute."""
        sys.stdout.buffer.write(f"{STEERING} in a network\n".encode())
        return super().forward(x)


def printing_network(space: Space) -> torch.nn.Module:
    """The network of a plan."""
    return PrintingNetwork(space.shape[0], space.outputs)
