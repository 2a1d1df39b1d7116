"""The time left of a stage of an audit: expected seconds of its tasks, corrected by how long such tasks really took."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

# What sets tasks of one kind apart: digest, seed, client, and the place of a trial.
APART = re.compile(r"-[0-9a-f]{10}\b|(?<=seed)\d+|(?<=client)\d+|(?<=messages)\d+|(?<=trial)\d+\.\d+")
PLANTED = "planted."
DECAY = 0.98  # of what is known with every task that ends, since other load on the machine comes and goes
PRIOR = 0.5  # tasks that a wider group counts for, beside those of a group that have ended
LEAST_PRIOR = 20.0  # seconds that the expectation itself counts for: short tasks show little about long ones
LONG = 60.0  # seconds from which a worker's first task of a group counts fully; shorter ones mostly load code
OVERDUE = 0.2  # of its expected seconds are left of a task that has taken longer


def groups_of(label: str) -> tuple[str, ...]:
    """Return the groups of a task, the widest first: all, runs or cases, those of an attack or defence, its kind."""
    kind = APART.sub("", label)
    sort = "case" if ".client" in kind or ".everyone" in kind else "run"
    first = kind.removeprefix(PLANTED).partition(".")[0]
    family = f"{PLANTED if kind.startswith(PLANTED) else ''}{first}"
    return "", sort, f"{sort} {family}", f"{sort} {kind}"


@dataclass
class Ended:
    """Tasks of a group that have ended: their number, expected and real seconds, the latest counting most."""

    first: float  # when the first of them ended
    number: float = 0.0
    expected: float = 0.0
    taken: float = 0.0

    def add(self, expected: float, taken: float, weight: float) -> None:
        """Count one more task, or a part of one."""
        self.number = DECAY * self.number + weight
        self.expected = DECAY * self.expected + weight * expected
        self.taken = DECAY * self.taken + weight * taken

    def ratio(self, prior: float, least: float = 0.0) -> float:
        """Return real by expected seconds; `prior` is that of a wider group, with a weight of at least `least`."""
        if not self.expected:
            return prior
        weight = max(PRIOR * self.expected / self.number, least)
        return (self.taken + weight * prior) / (self.expected + weight)


@dataclass
class Waiting:
    """Tasks of one kind that wait: their number, their expected seconds, and those of the longest."""

    number: int = 0
    expected: float = 0.0
    longest: float = 0.0

    def add(self, expected: float) -> None:
        """Count one more task."""
        self.number += 1
        self.expected += expected
        self.longest = max(self.longest, expected)

    def take(self, expected: float) -> None:
        """Count one task less."""
        self.number -= 1
        self.expected -= expected


@dataclass
class EstimatedProgress:
    """Progress in estimated seconds, by the clock given: what has ended corrects what is expected of the rest.

    Tasks run one after the other as far as is known; `start` shows how many run at a time. Without expected seconds
    all tasks count the same.
    """

    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    costs: dict[str, float] = field(default_factory=dict, kw_only=True)  # expected seconds of those that wait, by label
    waiting: dict[tuple[str, ...], Waiting] = field(default_factory=dict, kw_only=True)  # by groups
    running: dict[str, tuple[float, float]] = field(default_factory=dict, kw_only=True)  # expected seconds, its start
    ended: dict[str, Ended] = field(default_factory=dict, kw_only=True)  # by group, of all stages
    workers: int = field(default=1, kw_only=True)  # most tasks that ran at a time
    spent: float = field(default=0.0, kw_only=True)  # seconds of the tasks of this stage that have ended
    share: float = field(default=0.0, kw_only=True)  # of the stage, as shown last
    counted: tuple[int, int] = field(default=(0, 0), kw_only=True)  # tasks done and in total
    began: float = field(init=False)  # when the stage began
    last: float = field(init=False)  # when it began or a task of it ended

    def __post_init__(self) -> None:
        """Start the clock."""
        self.began = self.last = self.clock()

    def weigh(self, seconds: Mapping[str, float]) -> None:
        """Begin a stage with these tasks, by their labels; how long others took remains known."""
        self.costs, self.waiting, self.running = dict(seconds), {}, {}
        for label, expected in seconds.items():
            self.waiting.setdefault(groups_of(label), Waiting()).add(expected)
        self.spent, self.share, self.counted = 0.0, 0.0, (0, 0)
        self.began = self.last = self.clock()

    def start(self, label: str) -> None:
        """Take note that a task has started."""
        if label in self.costs:
            self.running[label] = self._take(label), self.clock()
            self.workers = max(self.workers, len(self.running))

    def end(self, label: str, done: int, total: int) -> None:
        """Take note that a task has ended; one whose start is not known began when the one before it ended."""
        now, self.counted = self.clock(), (done, total)
        began = self.running[label][1] if label in self.running else self.last
        expected = self.running.pop(label)[0] if label in self.running else self._take(label)
        self.last, taken = now, now - began
        self.spent += taken
        for group in groups_of(label) if expected else ():
            known = self.ended.setdefault(group, Ended(first=now))
            known.add(expected, taken, min(1.0, taken / LONG) ** 2 if began < known.first else 1.0)

    def forget(self) -> None:
        """Forget how long tasks took, where those of another audit follow."""
        self.ended, self.workers = {}, 1

    def seconds_left(self) -> float | None:
        """Return the estimated seconds that the stage still takes; None where nothing is known yet."""
        if not self.waiting:
            done, total = self.counted
            return (self.clock() - self.began) * (total - done) / done if done else None
        if not self.ended:
            return None
        longest, work = self._rest()
        return max(longest, work / self.workers)

    def share_done(self) -> float:
        """Return the part of the stage that is done, 0 to 1; it never shrinks."""
        if not self.waiting:
            return self.counted[0] / max(self.counted[1], 1)
        now, (_, work) = self.clock(), self._rest()
        done = self.spent + sum(now - began for _, began in self.running.values())
        if done + work:
            self.share = max(self.share, done / (done + work))
        return self.share

    def _take(self, label: str) -> float:
        """Return the expected seconds of a task that waits no longer; 0 where it is not known."""
        if label not in self.costs:
            return 0.0
        expected = self.costs.pop(label)
        self.waiting[groups_of(label)].take(expected)
        return expected

    def _rest(self) -> tuple[float, float]:
        """Return the estimated seconds of the longest task that has not ended, and of all together.

        Where a task has run longer than expected, those of its kind will too, but less so: it may be an exception.
        """
        now, rests, work, late = self.clock(), [0.0], 0.0, dict[tuple[str, ...], float]()
        for label, (expected, began) in self.running.items():
            groups, age = groups_of(label), now - began
            seconds = expected * self._ratio(groups, expected)
            rests.append(max(seconds - age, OVERDUE * seconds))
            work += rests[-1]
            late[groups] = max(late.get(groups, 1.0), math.sqrt(age / seconds) if seconds else 1.0)
        for groups, waiting in self.waiting.items():
            if waiting.number:
                ratio = self._ratio(groups, waiting.longest) * late.get(groups, 1.0)
                rests.append(waiting.longest * ratio)
                work += waiting.expected * ratio
        return max(rests), work

    def _ratio(self, groups: tuple[str, ...], expected: float) -> float:
        """Return real by expected seconds of a task, as far as those most like it have ended."""
        ratio = 1.0
        for group in groups:
            if group in self.ended:
                ratio = self.ended[group].ratio(ratio, 0.0 if group else max(LEAST_PRIOR, expected))
        return ratio
