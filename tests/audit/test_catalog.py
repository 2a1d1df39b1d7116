from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from fedxray.attacks.attributes.from_model import AttributeFromModel
from fedxray.attacks.base import Attack, Context, Need
from fedxray.attacks.evidence import Evidence
from fedxray.attacks.local_model.baselines import GlobalModel, LastReturned
from fedxray.audit import catalog
from fedxray.audit.catalog import describe, fill_fields
from fedxray.defences.base import Defence, Hooks, NoDefence, Work
from fedxray.defences.joined import Joined
from fedxray.errors import BadInput


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_every_name_resolves(kind: str) -> None:
    assert catalog.table(kind)
    for name in catalog.table(kind):
        assert catalog.resolve(kind, name) is not None


@pytest.mark.parametrize("kind", ["attacks", "floors", "defences"])
def test_a_class_carries_the_name_under_which_it_is_listed(kind: str) -> None:
    for name in catalog.table(kind):
        assert catalog.resolve(kind, name).name == name


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(BadInput, match="Did you mean last-returned"):
        catalog.resolve("attacks", "last-returnd")


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(BadInput, match="attacks"):
        catalog.table("atacks")


def test_settings_become_fields() -> None:
    made = catalog.make_attack("attribute-from-model", {"criterion": "squared", "grid": 7})
    assert made == AttributeFromModel(criterion="squared", grid=7)


@pytest.mark.parametrize("written", ["global-model", {"name": "global-model"}])
def test_a_sub_attack_is_a_name_or_a_table(written: Any) -> None:
    made = catalog.make_attack("attribute-from-model", {"model": written})
    assert made == AttributeFromModel(model=GlobalModel())


@pytest.mark.parametrize(
    ("settings", "place", "words"),
    [
        ({"gird": 3}, "attack.gird", "Did you mean grid?"),
        ({"nonsense": 3}, "attack.nonsense", "Known keys: "),
        ({"grid": 2.5}, "attack.grid", "a whole number"),
        ({"grid": True}, "attack.grid", "a whole number"),
        ({"criterion": "best"}, "attack.criterion", "one of 'loss', 'squared'"),
        ({"model": {"name": "global-model", "x": 1}}, "attack.model.x", "a setting of global-model"),
        ({"model": {}}, "attack.model", "a table with its name"),
    ],
)
def test_a_wrong_setting_names_its_place(settings: dict[str, Any], place: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        catalog.make_attack("attribute-from-model", settings)
    assert caught.value.argument == place and words in str(caught.value)


@dataclass(frozen=True, kw_only=True)
class Inner:
    """A table inside settings."""

    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Fields:
    """Settings of every kind that an annotation can ask for."""

    needed: int
    share: float = 0.5
    flag: bool = False
    word: Literal["a", "b"] = "a"
    either: int | Literal["all"] = "all"
    maybe: float | None = None
    many: tuple[float, ...] = ()
    pair: tuple[int, str] = (1, "x")
    table: dict[str, int] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)
    attack: Attack = field(default_factory=LastReturned)

    def __post_init__(self) -> None:
        if self.share > 1:
            raise BadInput("share", expected="at most 1", got=self.share, remedy="Try 1.")


def filled(**settings: Any) -> Fields:
    made: Fields = fill_fields(Fields, settings, "x", catalog._sub_attack)
    return made


def test_every_annotation_takes_what_it_should() -> None:
    made = filled(
        needed=3, share=1, flag=True, word="b", either=4, maybe=2, many=[1, 2.5], pair=[3, "y"],
        table={"k": 1}, inner={"size": 9}, attack="global-model",
    )  # fmt: skip
    assert made == Fields(
        needed=3, share=1.0, flag=True, word="b", either=4, maybe=2.0, many=(1.0, 2.5), pair=(3, "y"),
        table={"k": 1}, inner=Inner(size=9), attack=GlobalModel(),
    )  # fmt: skip
    assert isinstance(made.share, float) and isinstance(made.maybe, float)


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({}, "x.needed"),
        ({"needed": "1"}, "x.needed"),
        ({"needed": 1, "share": "much"}, "x.share"),
        ({"needed": 1, "share": 2}, "x.share"),
        ({"needed": 1, "flag": 1}, "x.flag"),
        ({"needed": 1, "word": 1}, "x.word"),
        ({"needed": 1, "either": "some"}, "x.either"),
        ({"needed": 1, "either": 1.5}, "x.either"),
        ({"needed": 1, "many": 3.0}, "x.many"),
        ({"needed": 1, "many": ["a"]}, "x.many"),
        ({"needed": 1, "pair": [1]}, "x.pair"),
        ({"needed": 1, "table": [1]}, "x.table"),
        ({"needed": 1, "inner": 3}, "x.inner"),
        ({"needed": 1, "inner": {"sise": 3}}, "x.inner.sise"),
    ],
)
def test_every_annotation_refuses_what_it_should(settings: dict[str, Any], place: str) -> None:
    with pytest.raises(BadInput) as caught:
        filled(**settings)
    assert caught.value.argument == place


def test_annotations_in_words() -> None:
    assert describe(int | Literal["all"]) == "a whole number or 'all'"
    assert describe(tuple[float, ...]) == "a list, each a number"
    assert describe(float | None) == "a number"


@dataclass(frozen=True, kw_only=True)
class Left(Defence):
    """A defence with a field of its own and one that another has too."""

    name: ClassVar[str] = "left"
    scale: float = 1.0
    depth: int = 1

    def hooks(self, work: Work) -> Hooks:
        return Hooks()

    def describe(self) -> str:
        return "left"


@dataclass(frozen=True, kw_only=True)
class Right(Defence):
    """Another defence with a scale."""

    name: ClassVar[str] = "right"
    scale: float = 1.0

    def hooks(self, work: Work) -> Hooks:
        return Hooks()

    def describe(self) -> str:
        return "right"


@pytest.fixture
def two_defences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(catalog.DEFENCES, "left", f"{__name__}:Left")
    monkeypatch.setitem(catalog.DEFENCES, "right", f"{__name__}:Right")


@pytest.mark.usefixtures("two_defences")
def test_joined_defences_share_out_their_settings() -> None:
    made = catalog.make_defence("left+right", {"depth": 3, "right": {"scale": 5.0}})
    assert made == Joined(parts=(Left(depth=3), Right(scale=5.0)))


@pytest.mark.usefixtures("two_defences")
@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("left+right", {"scale": 1.0}, "left and right"),
        ("left+right", {"dept": 1}, "depth"),
        ("left+left", {}, "each defence once"),
        ("left+rihgt", {}, "right"),
        ("left+", {}, "a known name"),
    ],
)
def test_joined_defences_refuse_what_is_unclear(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        catalog.make_defence(name, settings)


def test_no_defence_takes_no_settings() -> None:
    assert catalog.make_defence("none", {}) == NoDefence()
    with pytest.raises(BadInput, match="Known keys: none"):
        catalog.make_defence("none", {"scale": 1})


@dataclass(frozen=True, kw_only=True)
class OwnAttack(Attack):
    """An attack that a user wrote."""

    name: ClassVar[str] = "own"
    kind: ClassVar[Any] = "labels"
    roles: ClassVar[tuple[str, ...]] = ("server",)
    grants: ClassVar[tuple[str, ...]] = ()
    floors: ClassVar[tuple[str, ...]] = ()
    controls: ClassVar[tuple[str, ...]] = ()
    small: ClassVar[dict[str, Any]] = {}
    depth: int = 1

    def needs(self) -> tuple[Need, ...]:
        return ()

    def attack(self, view: Any, context: Context) -> Evidence:
        raise NotImplementedError


def test_a_factory_beside_the_plan_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "code_beside_a_plan.py").write_text(
        f"from {__name__} import OwnAttack\ndef build(depth):\n    return OwnAttack(depth=depth)\nnumber = 3\n"
    )
    made = catalog.from_factory("code_beside_a_plan:build", {"depth": 4}, tmp_path, "attack.factory", Attack)
    assert made.depth == 4  # type: ignore[attr-defined]
    assert sys.path[-1] == str(tmp_path.resolve()), "after everything installed, so that it shadows nothing"
    for spec, words in (
        ("code_beside_a_plan:nothing", "a function nothing"),
        ("code_beside_a_plan:number", "a function number .* got int"),
        ("code_nowhere:build", "code_nowhere"),
        ("code_beside_a_plan:build", "to take the settings"),
    ):
        with pytest.raises(BadInput, match=words):
            catalog.from_factory(spec, {"wrong": 1}, tmp_path, "attack.factory", Attack)
    with pytest.raises(BadInput, match="to return a Defence"):
        catalog.defence_from_factory("code_beside_a_plan:build", {"depth": 1}, tmp_path)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("raises", {}, r"got ZeroDivisionError: .*own_parts\.py:5\)"),
        ("raises", {"scale": 1}, "to take the settings scale"),
        ("leaves", {}, r"got SystemExit: 3 \(in .*own_parts\.py:8\)"),
        ("confused", {}, r"got TypeError: .*own_parts\.py:11\)"),
    ],
)
def test_whatever_a_users_factory_raises_is_reported_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    (tmp_path / "own_parts.py").write_text(
        "import sys\n\n\ndef raises():\n    1 / 0\n\ndef leaves():\n    sys.exit(3)\n\ndef confused():\n    len(3)\n"
    )
    with pytest.raises(BadInput, match=words):
        catalog.from_factory(f"own_parts:{name}", settings, tmp_path, "attack.factory", Attack)
    sys.modules.pop("own_parts", None)
