"""The tables of a plan, key by key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from fedxray.audit.plan.keys import REQUIRED, OpenSection, Section, key

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fedxray.attacks.base import Attack
    from fedxray.data import Space
    from fedxray.defences.base import Defence
    from fedxray.federation.recipe import Recipe

Count = Annotated[int, Field(ge=1, le=10**9)]
Rounds = Annotated[int, Field(ge=1, le=10**6)]
Rate = Annotated[float, Field(gt=0, le=1e6)]  # beyond, float32 overflows at once
Index = Annotated[int, Field(ge=0, le=10**9)]
Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Label = Annotated[str, Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f\x7f]+$")]
Factory = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]


class DataPart(OpenSection):
    """The records and who holds them; other keys are settings of the data set and of the partition."""

    name: str | None = key(None, "a name of `fedxray list datasets`", "the data set; or give `path`")
    path: str | None = key(
        None,
        "a CSV file, a folder of images by class, or an .npz with x, y and perhaps client",
        "your own data, relative to the plan",
    )
    target: str | None = key(None, "a column", "what is learned (own CSV)")
    sensitive: str | None = key(None, "a raw column", "the attribute that must not leak")
    categorical: list[str] = key([], "a list of columns", "columns of numbers that are categories (own CSV)")
    drop: list[str] = key([], "a list of columns", "columns to leave out (own CSV)")
    clients: Annotated[int, Field(ge=1, le=100_000)] = key(
        REQUIRED,
        "a whole number from 1 to 100,000",
        "how many clients there are; 1 if absent beside [transcript]",
    )
    partition: str = key(
        "iid",
        "iid, dirichlet (alpha), by-label, by-column (column), as-given, sizes (sizes), or a paper's own split: "
        "adult-doctorate, income-correlation (heterogeneity), att-faces",
        "who holds which records",
    )
    scale_target: bool | None = key(
        None, "true or false", "whether a regression target is standardised; the data set decides if absent"
    )
    limit: Count | None = key(
        None, "a whole number of at least 1", "at most this many training examples per client"
    )
    holdout: Share = key(
        0.1, "a share from 0 up to but below 1", "of each client, never trained on: controls and utility"
    )
    public: Share = key(
        0.1,
        "a share from 0 up to but below 1",
        "of all records, goes to no client: floors, imputation, priors",
    )
    schema_file: str | None = key(
        None,
        "a TOML file",
        "made-up records by a schema, the easiest case for an attacker; see the page on data",
        alias="schema",
    )
    node: str | int | None = key(
        None, "a node's id", "whose records these are, where a recording holds several nodes"
    )


class ModelPart(OpenSection):
    """The network; other keys are its settings."""

    name: str | None = key(None, "a name of `fedxray list models`", "the network; or give `factory`")
    factory: Factory | None = key(
        None, '"module:function"', "your own network: a function of the space that returns an nn.Module"
    )

    def make(self, space: Space, generator: torch.Generator, folder: Path) -> nn.Module:
        """The network with weights drawn from the generator."""
        from fedxray.models import build, from_factory

        if self.factory is not None:
            from fedxray.audit.factories import reach

            reach(folder)
            return from_factory(self.factory, space, generator)
        return build(str(self.name), space, generator=generator, **self.settings)


class FederationPart(Section):
    """How clients train and how the server averages."""

    algorithm: Literal["fedsgd", "fedavg", "fedprox"] = key(
        "fedavg",
        '"fedsgd", "fedavg" or "fedprox"',
        "fedsgd sends one gradient of all examples, the others a change of weights",
    )
    rounds: Rounds = key(10, "a whole number from 1 to 1,000,000", "rounds of the federation")
    epochs: Count = key(1, "a whole number of at least 1", "local epochs per round")
    batch_size: Count | Literal["all"] = key(
        32, 'a whole number of at least 1, or "all"', "examples per local step"
    )
    learning_rate: Rate = key(0.01, "a number above 0 and up to 1e6", "of the clients")
    momentum: Annotated[float, Field(ge=0, lt=1)] = key(
        0.0, "a number from 0 up to but below 1", "of the clients, fresh in every round"
    )
    mu: Annotated[float, Field(ge=0, le=1e6)] = key(
        0.0, "a number from 0 to 1e6", "fedprox: the pull to the received model"
    )
    server_learning_rate: Rate = key(
        1.0, "a number above 0 and up to 1e6", "step of the server along the mean update"
    )
    participation: Annotated[float, Field(gt=0, le=1)] = key(
        1.0,
        "a share above 0 and up to 1",
        "share of the clients in each round; 1 where records are guessed from sums",
    )
    weighting: Literal["examples", "uniform"] = key(
        "examples", '"examples" or "uniform"', "weight of a client in the mean"
    )
    shuffle: Literal["epoch", "once", "never"] = key(
        "epoch", '"epoch", "once" or "never"', "when the order of the records is drawn"
    )
    loss: Literal["cross-entropy", "mse"] | None = key(
        None, '"cross-entropy" or "mse"', "by the kind of target if absent"
    )
    dtype: Literal["float32", "float64"] = key(
        "float32", '"float32" or "float64"', "of weights, and of inputs, which are read as float32"
    )
    batch_norm: Literal["shared", "local"] = key(
        "shared", '"shared" or "local"', "whether BatchNorm statistics leave the client"
    )
    secure_aggregation: bool = key(False, "true or false", "whether the server sees only sums")
    record: Literal["all", "last"] | Annotated[str, Field(pattern=r"^every-[1-9]\d{0,8}$")] | list[Index] = (
        key(
            "all",
            '"all", "last", "every-10" or a list of rounds',
            "which rounds are kept; the final model always is",
        )
    )

    def recipe(self, loss: str) -> Recipe:
        """The recipe that all clients share; `loss` is used where the plan names none."""
        from fedxray.federation.recipe import Recipe

        return Recipe(
            algorithm=self.algorithm,
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            momentum=self.momentum,
            mu=self.mu,
            shuffle=self.shuffle,
            loss=self.loss or loss,
            weighting=self.weighting,
            server_learning_rate=self.server_learning_rate,
            batch_norm=self.batch_norm,
        )


class DefencePart(OpenSection):
    """One defence of the clients; other keys are its settings."""

    name: str | None = key(
        None, "a name of `fedxray list defences`, several joined with +", "the defence; or give `factory`"
    )
    factory: Factory | None = key(
        None, '"module:function"', "your own defence: a function that returns a fedxray.defences.base.Defence"
    )
    label: Label | None = key(
        None, "a text, unique in the plan", "its name in the results; default: its name"
    )
    deployed: bool = key(False, "true or false", "whether this is the one that the gate judges")

    @property
    def title(self) -> str:
        """The label in the results."""
        return self.label or self.name or str(self.factory)

    @property
    def is_none(self) -> bool:
        """Whether nothing is defended."""
        return self.factory is None and self.name == "none"

    def make(self, folder: Path, argument: str = "defence") -> Defence:
        """The defence itself."""
        from fedxray.audit import catalog

        if self.factory is not None:
            return catalog.defence_from_factory(self.factory, self.settings, folder, argument)
        return catalog.make_defence(str(self.name), self.settings, argument)


class AttackPart(OpenSection):
    """One attack from one seat; other keys are fields of the attack's class."""

    name: str | None = key(None, "a name of `fedxray list attacks`", "the attack; or give `factory`")
    factory: Factory | None = key(
        None, '"module:function"', "your own attack: a function that returns a fedxray.attacks.base.Attack"
    )
    label: Label | None = key(
        None, "a text, unique in the plan", "its name in the results; default: its name"
    )
    role: str = key(
        "server",
        "server, eavesdropper, active-server, curious-client or secure-aggregation",
        "the seat of the adversary",
    )
    grants: list[str] | None = key(
        None, "a list of grants", "what the adversary is told; default: what the attack's paper assumes"
    )
    targets: Literal["all"] | Count | list[Index] = key(
        "all", '"all", how many, or a list of clients', "the clients that are attacked"
    )
    rounds: Literal["first", "last"] | list[Index] | None = key(
        None, '"first", "last" or a list of rounds', "recorded rounds that are read; default: all"
    )
    seat: Index | list[Index] | None = key(
        None, "a client or a list of clients", "the curious client(s); default: 0"
    )
    controls: list[str] | None = key(
        None,
        "a list of the attack's controls, perhaps empty",
        "which controls are run; some repeat the whole attack; default: all (`fedxray show NAME`)",
    )
    metrics: list[str] | None = key(
        None,
        "a list of lpips, psnr_002, ssim_002, psnr_004 and ssim_004, and of these, psnr, ssim and mse with _by_index",
        "scores of images beyond the usual ones; lpips needs its weights (`fedxray data get lpips`)",
    )

    restore: Any = key(
        None,
        'a restorer\'s name, a table as { name = "ddrm", prior = "priors/mine" }, or a list of these',
        "what is done to the raw images; each restorer gets rows of its own, label+restorer, beside the raw ones",
    )

    search: Any = key(
        None,
        'a table as { trials = 16, sampler = "random"|"gp"|"grid", ranges = { SETTING = [low, high] } }; also '
        "batch = 8, and with gp starts = 10; give_up = 0.5",
        "settings that the attack tries and judges by its own measure (`fedxray show NAME` lists them); see "
        "[Searching settings](search.md)",
    )

    @property
    def title(self) -> str:
        """The label in the results."""
        return self.label or self.name or str(self.factory)

    @property
    def seats(self) -> tuple[int, ...]:
        """The curious clients, none for other roles."""
        if self.role != "curious-client":
            return ()
        if isinstance(self.seat, list):
            return tuple(self.seat)
        return (self.seat or 0,)

    def make(self, folder: Path, argument: str = "attack") -> Attack:
        """The attack itself."""
        from fedxray.audit import catalog

        if self.factory is not None:
            return catalog.attack_from_factory(self.factory, self.settings, folder, argument)
        return catalog.make_attack(str(self.name), self.settings, argument)


class GatePart(Section):
    """One limit that a later `fedxray gate` checks."""

    attack: str = key(REQUIRED, "the label of an attack", "which attack")
    role: str | None = key(None, "a role", "which seat; default: the worst of all")
    defence: str | None = key(None, "the label of a defence", "which defence; default: the deployed one")
    metric: str = key(REQUIRED, "a metric, or a metric with _over_floor", "what is limited")
    limit: float = key(REQUIRED, "a number", "the largest value that passes")


Sweep = dict[str, dict[str, list[Any]]]
