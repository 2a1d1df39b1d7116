"""Checks the documentation against the code: generated pages, commands, links, snippets and messages.

Pages that `docs/generate.py` builds are not committed; they are built here, in memory or in a temporary folder.
"""

from __future__ import annotations

import functools
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

from fedxray import FedxrayError, simulate
from fedxray.adversary.grants import ROLES
from fedxray.audit import catalog
from fedxray.audit.judge.results import schema
from fedxray.audit.plan import make_plan
from fedxray.audit.run.preflight import preflight
from fedxray.audit.run.prepare import prepare
from fedxray.cli import app
from fedxray.data.catalog import DATASETS
from fedxray.data.sources import SOURCES
from fedxray.federation.recording.reader import read_recording
from fedxray.reproduce.base import REPRODUCTIONS
from tests.golden import flower_network

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
BUILT = ("attacks.md", "plan-reference.md", "settings.md", "results/README.md", "papers/scoreboard.md")
GENERATED = {DOCS / path for path in BUILT}
COMMITTED = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    ROOT / "examples" / "README.md",
    *sorted(set(DOCS.rglob("*.md")) - GENERATED),
]
PAGES = [*COMMITTED, *sorted(GENERATED)]
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.M | re.S)
COMMAND = re.compile(r"(?:^|[\s`\\/])fedxray ((?:data |import )?[a-z][a-z-]*)((?: +[^\s`|,;.)]\S*)*)", re.M)
# Words that follow "fedxray" in a sentence and are no commands.
SENTENCE = re.compile(r"`([^`\n]+)`")


@functools.cache
def generate() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"), run_name="generate")


@functools.cache
def generated() -> dict[Path, str]:
    """The pages that are built and not committed."""
    return {DOCS / path: text for path, text in generate()["generated"]().items()}


def text_of(path: Path) -> str:
    return generated()[path] if path in GENERATED else path.read_text(encoding="utf-8")


def blocks(language: str) -> list[Any]:
    """All fenced blocks of a language on committed pages, with the page and number as id."""
    return [
        pytest.param(body, id=f"{page.relative_to(ROOT)}-{number}")
        for page in COMMITTED
        for number, (kind, body) in enumerate(BLOCK.findall(text_of(page)))
        if kind == language
    ]


def code_of(text: str) -> list[str]:
    """Everything that is code: lines of blocks without a language, and inline code outside of blocks."""
    lines = [line.strip() for kind, body in BLOCK.findall(text) if not kind for line in body.splitlines()]
    return lines + SENTENCE.findall(BLOCK.sub("", text))


def test_blocks_of_committed_pages_are_up_to_date() -> None:
    stale = [path.name for path, text in generate()["filled"]().items() if text_of(path) != text]
    assert not stale, "run `make docs`"


def test_generated_pages_are_built_and_not_committed(tmp_path: Path) -> None:
    assert set(generated()) == GENERATED
    ignored = text_of(ROOT / ".gitignore").splitlines()
    assert all(f"/{path.relative_to(ROOT).as_posix()}" in ignored for path in GENERATED)
    assert {path.relative_to(tmp_path) for path in generate()["write"](tmp_path)} == {
        path.relative_to(DOCS) for path in GENERATED
    }
    assert generate()["write"](tmp_path) == []
    assert all((tmp_path / path.relative_to(DOCS)).read_text("utf-8") == text_of(path) for path in GENERATED)
    # Snippets are run on committed pages only.
    assert not [kind for path in GENERATED for kind, _ in BLOCK.findall(text_of(path)) if kind]


def test_a_stale_block_is_found() -> None:
    page = "before\n<!-- roles -->\n| old |\n<!-- end of roles -->\nafter\n"
    filled = generate()["_filled"](page, ROOT / "README.md")
    assert "| old |" not in filled and "`curious-client`" in filled
    assert filled.startswith("before\n") and filled.endswith("\nafter\n")
    with pytest.raises(KeyError, match="no block is called 'rolls'"):
        generate()["_filled"]("<!-- rolls -->\n<!-- end of rolls -->", ROOT / "README.md")


def test_every_reproduction_is_listed() -> None:
    page = text_of(DOCS / "reproductions.md")
    assert [name for name in REPRODUCTIONS if f"`{name}`" not in page] == []


def test_pages_on_papers_are_short() -> None:
    lengths = {page.name: len(text_of(page).split()) for page in set(DOCS.glob("papers/*.md")) - GENERATED}
    assert lengths and {name: words for name, words in lengths.items() if words > 2000} == {}


def test_the_page_of_results_has_every_result() -> None:
    text = text_of(DOCS / "results" / "README.md")
    assert all(f"\n## {result.stem}\n" in text for result in (DOCS / "results").glob("*.json"))


def test_the_matrix_names_every_attack_floor_and_metric() -> None:
    page = text_of(DOCS / "attacks.md")
    for kind in ("attacks", "floors", "metrics"):
        assert all(f"| `{name}` |" in page for name in catalog.table(kind)), kind


@pytest.mark.parametrize("page", ["README.md", "docs/concepts.md"])
def test_threat_models_are_those_of_the_code(page: str) -> None:
    text = text_of(ROOT / page)
    assert all(f"| `{name}` | {role.sees} |" in text for name, role in ROLES.items())


def test_first_screen_of_the_readme() -> None:
    first = text_of(ROOT / "README.md").splitlines()[:16]
    assert "make demo " in "\n".join(first) and "make test " in "\n".join(first)
    assert (DOCS / "images" / "report.png").stat().st_size < 300_000


def test_sizes_are_those_that_make_says() -> None:
    found = re.findall(r"say_size\.sh (\d+) ([\d.]+)", text_of(ROOT / "Makefile"))
    told = re.search(r"about (\d+) MB and keeps ([\d.]+) GB.*?(\d+) MB and ([\d.]+) GB", text_of(ROOT / "README.md"))
    assert told is not None and list(told.groups()) == [*found[0], *found[1]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", text_of(page)))
    local = [link.partition("#")[0] for link in links if not link.startswith(("https://", "#"))]
    targets = {link: (page.parent / link).resolve() for link in local}
    assert [link for link, path in targets.items() if path not in GENERATED and not path.exists()] == []


@functools.cache
def commands() -> dict[str, Any]:
    """Every command by its words, such as "data get"."""
    root: Any = typer.main.get_command(app)
    found = {}
    for name, command in root.commands.items():
        inner = getattr(command, "commands", None)
        found.update({f"{name} {deep}": one for deep, one in inner.items()} if inner else {name: command})
    return found


def named_commands(text: str) -> list[tuple[str, str]]:
    """Commands of fedxray in code, each with its arguments."""
    return [found for code in code_of(text) for found in COMMAND.findall(code) if not code.endswith(":")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_exist_with_their_options(page: Path) -> None:
    for name, arguments in named_commands(text_of(page)):
        assert name in commands(), f"fedxray {name}"
        known = {option for one in commands()[name].params for option in one.opts}
        assert set(re.findall(r"(?<=\s)--[a-z-]+", arguments)) <= known, f"fedxray {name}{arguments}"
        words = arguments.split()
        if name == "list" and words and words[0].isalpha() and words[0].islower():
            assert catalog.table(words[0])
        if name == "show" and words and words[0] not in ("NAME",):
            assert any(words[0] in catalog.table(kind) for kind in catalog.KINDS)


def test_the_search_for_commands_finds_them() -> None:
    page = "`fedxray audit a.toml --out x`\n```\n.venv/bin/fedxray demo --jobs 2  # c\n```\nfedxray runs attacks"
    assert [name for name, _ in named_commands(page)] == ["demo", "audit"]
    assert "purge" in {name for page in PAGES for name, _ in named_commands(text_of(page))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.M))
    named = {found for code in code_of(text_of(page)) for found in re.findall(r"(?:^|&& |/cpu )make ([a-z-]+)", code)}
    assert named <= targets


@pytest.mark.parametrize("snippet", blocks("python"))
def test_python_snippets_run(
    snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "snippet.py"
    file.write_text(snippet, encoding="utf-8")
    runpy.run_path(str(file), run_name="snippet")
    printed = capsys.readouterr().out
    assert bool(printed) == ("print(" in snippet)


def test_the_recipe_of_a_live_node_runs_on_a_recorded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = text_of(DOCS / "epsilon.md").partition("```\nimport numpy")[2].partition("```")[0]
    golden = ROOT / "tests" / "golden"
    shutil.copytree(golden / "flower", tmp_path, dirs_exist_ok=True)
    (tmp_path / "my_app").mkdir()
    shutil.copy(golden / "flower_network.py", tmp_path / "my_app" / "task.py")
    with np.load(tmp_path / "records.npz") as file:  # each record that was trained on now equals its prediction
        records = dict(file)
    recording, model = read_recording(tmp_path / "recording"), flower_network.network()
    replies = [message.reply for message in recording.messages if message.what == "train" and message.reply]
    model.load_state_dict(recording.arrays(replies[-1]))
    known = model(torch.from_numpy(records["x"]))[:, 0].detach().numpy()
    records["y"] = np.where(records["part"] == "train", known, known + 1)
    np.savez(tmp_path / "records.npz", **records)
    (tmp_path / "recipe.py").write_text(f"import numpy{recipe}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    runpy.run_path("recipe.py")
    assert re.fullmatch(r"epsilon of one record is at least 3\.\d\d\n", capsys.readouterr().out)
    for name in ("my_app.task", "my_app"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("snippet", blocks("toml"))
def test_plans_are_valid(snippet: str) -> None:
    document = tomllib.loads(snippet)
    if "attack" in document and "data" in document:
        assert make_plan(document, ROOT).attacks
    else:  # a piece of a plan: complete it
        whole = {"data": {"name": "clinic", "clients": 2}, "model": {"name": "mlp"}}
        assert make_plan({**whole, "attack": [{"name": "membership-loss"}], **document}, ROOT)


@pytest.mark.parametrize("part", ["case", "row", "utility", "power", "budget"])
def test_every_field_of_the_results_is_explained(part: str) -> None:
    page = text_of(DOCS / "results.md")
    assert [name for name in schema()["$defs"][part]["properties"] if f"`{name}`" not in page] == []


def test_every_data_set_is_described() -> None:
    page = text_of(DOCS / "settings.md")
    for name in DATASETS:
        sentence = catalog.first_paragraph(catalog.resolve("datasets", name))
        assert sentence and sentence.replace("|", "\\|") in page, name
    licences = text_of(DOCS / "data.md")
    assert [name for name in DATASETS if name in SOURCES and f"`{name}`" not in licences] == []


WHOLE: dict[str, Any] = {
    "data": {"name": "clinic", "clients": 2, "records": 20, "partition": "as-given"},
    "model": {"name": "mlp"},
    "federation": {"rounds": 2},
    "attack": [{"name": "attribute-from-model"}],
}


@pytest.mark.parametrize(
    "changed",
    [
        {"attack": [{"name": "attribute-from-model", "role": "secure-aggregation"}]},
        {"data": {"path": "days.csv", "target": "cost", "clients": 2}},
    ],
)
def test_messages_on_the_page_are_the_real_ones(changed: dict[str, Any], tmp_path: Path) -> None:
    rows = [f"2024-03-{place % 28 + 1:02d},{place}.5" for place in range(60)]
    (tmp_path / "days.csv").write_text("\n".join(["day,cost", *rows]), encoding="utf-8")
    with pytest.raises(FedxrayError) as caught:
        preflight(make_plan({**WHOLE, **changed}, tmp_path))
    assert on_the_page(str(caught.value)), str(caught.value)


def test_the_message_about_a_training_that_diverges_is_the_real_one(tmp_path: Path) -> None:
    plan = make_plan({**WHOLE, "federation": {"rounds": 9, "epochs": 9, "learning_rate": 1e6}}, tmp_path)
    with pytest.raises(FedxrayError) as caught:
        simulate(prepare(plan, "none", 0).federation, seed=0)
    assert on_the_page(str(caught.value)), str(caught.value)


def on_the_page(message: str) -> bool:
    """Whether the page on troubles quotes this message, with ... for what changes."""
    quoted = re.findall(r"\*\*`([^`]+)`\*\*", text_of(DOCS / "troubleshooting.md"))
    return any(all(piece in message for piece in one.split("...")) for one in quoted)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    generate()["write"](tmp_path / "docs")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    page = text_of(tmp_path / "site" / "index.html")
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?:https?:)?//", page), "nothing from other sites"
