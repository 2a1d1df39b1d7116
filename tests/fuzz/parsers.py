"""Everything that reads a file from someone else, with small valid inputs to damage.

`build` writes valid inputs into a folder and returns those to damage; `read` reads one of them or the folder around it.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from fedxray.audit import catalog
from fedxray.audit.judge.compare import compare
from fedxray.audit.judge.gate import judge_gates, read_policy, recommend
from fedxray.audit.judge.results import read_results
from fedxray.audit.plan import read_plan
from fedxray.audit.search import ask, study_of
from fedxray.cli.decide import compare_lines, gate_lines, recommend_lines
from fedxray.data.catalog import load
from fedxray.errors import BadInput
from fedxray.federation.folder import FolderShelf, write_transcript
from fedxray.federation.recording.reader import read_recording
from fedxray.federation.recording.writer import open_folder, write_message
from fedxray.federation.round_loop import simulate
from fedxray.files import parse_toml
from fedxray.integrations.checkpoints import read_checkpoint
from fedxray.report.build import contents, render
from fedxray.report.gallery import read_galleries
from fedxray.report.terminal import summary_lines
from tests.audit.plans import tiny, write_toml
from tests.federation.messages import training_message
from tests.federation.runs import federation, network
from tests.federation.test_folder import reread
from tests.report.synthetic import make_cases, make_document


@dataclass(frozen=True)
class Parser:
    """One kind of input, and the share of the inputs that it gets."""

    build: Callable[[Path], list[Path]]
    read: Callable[[Path], None]
    share: float = 1.0


def _write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def _plans(folder: Path) -> list[Path]:
    for kind in ("attacks", "defences", "restorers", "datasets", "models"):
        for name in catalog.table(kind):
            catalog.resolve(kind, name)  # imports it now, before the first fork
    (folder / "t.csv").write_text("a,b\n1,2\n")
    search = {"name": "awa", "search": {"trials": 4, "sampler": "random", "ranges": {"q_conv": [0.1, 10.0]}}}
    documents = (
        tiny(attack=[{"name": "membership-loss", "targets": [0]}]),
        tiny(defence=[{"name": "none"}, {"name": "dp-sgd", "epsilon": 3.0, "delta": 1e-5, "clip": 1.0, "label": "d"}]),
        tiny(attack=[search]),
        {**tiny(), "data": {"path": "t.csv", "target": "b", "clients": 2, "keep": ["a"], "missing": "median"}},
        {**tiny(federation=None), "data": {"path": "t.csv", "target": "b"}, "transcript": {"path": "rec"}},
    )
    return [write_toml(folder / f"{number}.toml", document) for number, document in enumerate(documents)]


def _read_plan(path: Path) -> None:
    read_plan(path)


CSV = "id,age,town,day,smokes,cost\n" + "".join(
    f"{row},{20 + row * 7 % 31}.5,{'xyz'[row % 3]},2024-01-{10 + row},{row % 2},{row * row}\n" for row in range(24)
)


def _tables(folder: Path) -> list[Path]:
    gaps = CSV.replace("21.5", "").replace(",", ";").replace("x", '"x ""y"""')
    return [
        _write(folder / "a.csv", CSV),
        _write(folder / "b.csv", gaps),
        _write(folder / "c.csv", "a,cost\n1,2\n3,4\n5,1\n"),
    ]


def _read_table(path: Path) -> None:
    for settings in (
        {},
        {"drop": ["id"], "keep": ["day"], "missing": "median"},
        {"missing": "drop-rows", "keep": ["id"]},
    ):
        _tolerant(lambda settings=settings: load(path=path, target="cost", **settings))  # type: ignore[misc]


def _tolerant(read: Callable[[], Any]) -> None:
    """Read in one of several ways: a refusal of one is no reason to leave out the next."""
    try:
        read()
    except BadInput as refused:
        str(refused)


def _images(folder: Path) -> list[Path]:
    grey = (np.arange(48).reshape(6, 8) * 5).astype(np.uint8)
    pictures = {
        "1.png": grey, "2.png": grey.astype(np.uint16) * 16, "3.jpg": grey, "4.bmp": grey, "5.pgm": grey,
        "6.tif": grey.astype(np.uint16), "7.tiff": grey.astype(np.float32), "8.ppm": np.stack([grey] * 3, axis=2),
    }  # fmt: skip
    files = []
    for number, (name, pixels) in enumerate(pictures.items()):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, {"jpg": "JPEG", "tif": "TIFF", "pgm": "PPM"}.get(name[2:], name[2:]))
        files.append(_write(folder / str(number) / "a" / name, buffer.getvalue()))
        _write(folder / str(number) / "b" / name, buffer.getvalue())
    plain = b"P2 4 3 4095\n" + b" ".join(b"%d" % value for value in range(0, 4095, 350))
    files.append(_write(folder / "plain" / "a" / "1.pgm", plain))
    _write(folder / "plain" / "b" / "1.pgm", plain)
    return files


def _read_images(path: Path) -> None:
    _tolerant(lambda: load(path=path.parent.parent))
    load(path=path.parent.parent, size=4)


def _arrays(folder: Path) -> list[Path]:
    x, y = np.arange(24, dtype=np.float32).reshape(8, 3), np.arange(8) % 2
    np.savez(folder / "a.npz", x=x, y=y, client=np.array(list("aabbccdd")))
    np.savez_compressed(folder / "b.npz", x=(np.arange(8 * 16) % 255).reshape(8, 4, 4).astype(np.uint8), y=y)
    np.savez(folder / "c.npz", x=np.zeros((8, 3, 4, 4), np.float32), y=y / 2)
    return sorted(folder.glob("*.npz"))


def _read_arrays(path: Path) -> None:
    for settings in ({}, {"ready": True}, {"ready": True, "groups": {"x1": [1], "g": [0, 2]}}):
        _tolerant(lambda settings=settings: load(path=path, **settings))  # type: ignore[misc]


SCHEMA = """records = 20
target = "cost"
[columns.age]
low = 18
high = 95
whole = true
[columns.smoker]
values = ["no", "yes"]
shares = [0.7, 0.3]
[columns.cost]
low = 0
high = 5e4
"""


def _schemas(folder: Path) -> list[Path]:
    images = 'kind = "image"\nshape = [1, 6, 5]\nclasses = 3\nrecords = 9\n'
    return [_write(folder / "a.toml", SCHEMA), _write(folder / "b.toml", images)]


def _read_schema(path: Path) -> None:
    load(schema=path, clients=2)


def _transcript(folder: Path) -> list[Path]:
    run = federation(model="norm", rounds=2, recipe={"batch_size": 4}, sizes=(8, 4))
    transcript, _ = simulate(run, seed=3, shelf=FolderShelf(folder / "run", shard_bytes=10_000))
    write_transcript(transcript, folder / "run")
    index = folder / "run" / "transcript.json"
    return [index, index, index, sorted((folder / "run").glob("*.safetensors"))[0]]


def _read_transcript(path: Path) -> None:
    index = path.parent / "transcript.json"
    original = index.read_bytes()
    if path != index:  # make the checksum fit, so that the damaged shard is read
        content, plain = path.read_bytes(), json.loads(original)
        shard = next(shard for shard in plain["shards"] if shard["name"] == path.name)
        shard |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        index.write_text(json.dumps(plain))
    try:
        reread(path.parent, network("norm"))
    finally:
        index.write_bytes(original)


def _recording(folder: Path) -> list[Path]:
    open_folder(folder / "rec", "client")
    write_message(folder / "rec", training_message(1, config={"lr": 0.1, "epochs": 2}))
    write_message(folder / "rec", training_message(2))
    messages = sorted((folder / "rec" / "messages").glob("*.json"))
    return [
        *messages,
        messages[0],
        folder / "rec" / "recording.json",
        *sorted((folder / "rec" / "arrays").iterdir())[:1],
    ]


def _read_recording(path: Path) -> None:
    folder = path.parent if path.name == "recording.json" else path.parent.parent
    content = path.read_bytes()
    digest, size = hashlib.sha256(content).hexdigest(), len(content)
    if path.suffix == ".safetensors" and digest != path.stem:  # under the name of its content, so that it is read
        changed = [file for file in (folder / "messages").glob("*.json") if path.stem in file.read_text()]
        originals = {file: file.read_bytes() for file in changed}
        target = path.with_name(f"{digest}.safetensors")
        target.write_bytes(content)
        for file in changed:
            plain = json.loads(originals[file])
            for side in ("sent", "reply"):
                if plain[side] and plain[side]["sha256"] == path.stem:
                    plain[side] |= {"sha256": digest, "bytes": size}
            file.write_text(json.dumps(plain))
        try:
            _whole_recording(folder)
        finally:
            for file, original in originals.items():
                file.write_bytes(original)
            target.unlink()
    else:
        _whole_recording(folder)


def _whole_recording(folder: Path) -> None:
    recording = read_recording(folder)
    recording.digest()
    for message in recording.messages:
        for stored in (message.sent, message.reply):
            if stored is not None and recording.fault(stored) is None:
                recording.arrays(stored)
                recording.forms(stored)


def _results(folder: Path) -> list[Path]:
    document = make_document(make_cases()[:6])
    text = json.dumps(document)
    return [_write(folder / "results.json", text), _write(folder / "again" / "results.json", text)]


def _read_results(path: Path) -> None:
    document = read_results(path)
    other = read_results(path.parent.parent / "results.json" if path.parent.name == "again" else path)
    _tolerant(lambda: gate_lines(judge_gates(document)))
    _tolerant(lambda: recommend_lines(recommend(document)))
    _tolerant(lambda: compare_lines(compare(document, other)))
    _tolerant(lambda: summary_lines(document))


def _read_report(path: Path) -> None:
    document = read_results(path)
    render(contents(document, read_galleries(path.parent, show_private=False, document=document)))


def _checkpoints(folder: Path) -> list[Path]:
    state = {name: value.detach().clone() for name, value in network("norm").state_dict().items()}
    torch.save(state, folder / "a.pt")  # noqa: TID251
    torch.save({"state_dict": state, "epoch": 3}, folder / "b.pth", _use_new_zipfile_serialization=False)  # noqa: TID251
    save_file(state, folder / "c.safetensors")
    np.savez(folder / "d.npz", *(value.numpy() for value in state.values()))
    return [folder / name for name in ("a.pt", "b.pth", "c.safetensors", "d.npz")]


def _read_checkpoint(path: Path) -> None:
    read_checkpoint(path)


POLICY = """[[gate]]
attack = "inverting-gradients"
defence = "none"
metric = "psnr_over_floor"
limit = 0.05
[[gate]]
attack = "inverting-gradients"
role = "server"
defence = "none"
metric = "psnr"
limit = 0.6
"""


def _policies(folder: Path) -> list[Path]:
    return [_write(folder / "policy.toml", POLICY)]


def _read_policy(path: Path) -> None:
    judge_gates(DOCUMENT, read_policy(path))


DOCUMENT = make_document(make_cases()[:6])


def _searches(folder: Path) -> list[Path]:
    tables = (
        'trials = 16\nsampler = "grid"\nbatch = 4\n[ranges]\nq_conv = [0.1, 10.0]\nq_norm = [1, 4]\n',
        'trials = 6\nsampler = "random"\ngive_up = 0.5\n',
    )
    return [_write(folder / f"{number}.toml", table) for number, table in enumerate(tables)]


def _read_search(path: Path) -> None:
    try:
        table = parse_toml(path.read_bytes())
    except (RecursionError, ValueError) as problem:
        raise BadInput("search", expected="TOML", got=type(problem).__name__, remedy="Fix it.") from problem
    study = study_of(catalog.make_attack("awa", {}), table, "search")
    if study.trials <= 1000 and study.sampler != "gp":
        ask(study, [], torch.Generator().manual_seed(0))


PARSERS = {
    "plan": Parser(_plans, _read_plan),
    "table": Parser(_tables, _read_table),
    "images": Parser(_images, _read_images),
    "arrays": Parser(_arrays, _read_arrays),
    "schema": Parser(_schemas, _read_schema),
    "transcript": Parser(_transcript, _read_transcript, 0.5),
    "recording": Parser(_recording, _read_recording),
    "results": Parser(_results, _read_results),
    "report": Parser(_results, _read_report, 0.1),
    "checkpoint": Parser(_checkpoints, _read_checkpoint),
    "policy": Parser(_policies, _read_policy),
    "search": Parser(_searches, _read_search),
}
