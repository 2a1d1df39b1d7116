"""The commands and their options; heavy modules are imported inside them, so that --help answers at once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperArgument

from fedxray.cli.recordings import import_app
from fedxray.errors import FedxrayError, printable


def _keep_help() -> None:
    """Give arguments back their help: typer 0.20 sets it before click 8.5, which has one of its own, empties it."""
    start = TyperArgument.__init__

    def init(self: TyperArgument, **given: Any) -> None:
        start(self, **given)
        if self.help is None:
            self.help = given.get("help")

    TyperArgument.__init__ = init  # type: ignore[method-assign]


_keep_help()
app = typer.Typer(
    name="fedxray",
    help="Audit what a federated-learning set-up leaks: run published attacks, report what leaks and how surely.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Download data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")
app.add_typer(import_app, name="import")

Out = Annotated[Path | None, typer.Option("--out", help="Folder for the results.")]
Engine = Annotated[
    str, typer.Option("--engine", help="inline (this process), processes (workers) or ray; same results.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Number of workers; default: one per core.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
Folder = Annotated[Path, typer.Argument(help="The folder of an audit.")]
Policy = Annotated[Path | None, typer.Option("--policy", help="A TOML file of limits, in place of the plan's.")]


def main() -> NoReturn:
    """Run a command; a user error is one message and exit code 2."""
    try:
        app()
    except FedxrayError as error:
        print(f"fedxray: {_harmless(str(error))}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        message = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
        print(f"fedxray: {_harmless(message)}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("fedxray: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(0)


def _harmless(text: str) -> str:
    """Return a message, which may quote an untrusted plan or policy, without control characters."""
    return "\n".join(map(printable, text.split("\n")))


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"fedxray {version('fedxray')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Audit what a federated-learning set-up leaks: run published attacks, report what leaks and how surely."""


@app.command()
def init(
    kind: Annotated[
        str, typer.Argument(help="hospital-table, hospital-images, flower or one-gradient.", metavar="KIND")
    ],
    path: Annotated[
        Path | None, typer.Argument(help="A CSV file, a folder of images by class, or a recording.", metavar="PATH")
    ] = None,
    target: Annotated[str | None, typer.Option("--target", help="The column that the model predicts.")] = None,
    sensitive: Annotated[str | None, typer.Option("--sensitive", help="The column that must not leak.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="The plan to write; default: NAME.toml here.")] = None,
) -> None:
    """Look at your data and write a commented plan with attacks, defences and limits that fit it."""
    from fedxray.cli.draft import run_init

    run_init(kind, path, target, sensitive, out)


@app.command()
def audit(
    plan: Annotated[Path, typer.Argument(help="The plan, a TOML file (docs/plan.md).", metavar="PLAN.toml")],
    out: Out = None,
    engine: Engine = "processes",
    jobs: Jobs = None,
    address: Annotated[
        str | None, typer.Option("--address", help="With --engine ray: an existing cluster, HOST:PORT or auto.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an audit, or extend it by what its plan has more.")
    ] = False,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Number of seeds in total; default: those of the plan.")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", help="Time limit (90s, 10m, 1h30m); reduces the workload and reports what was dropped."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print how the data was read, and cases, time and disk needed.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Run an audit: simulate the federation, attack it, write results.json and report.html."""
    from fedxray.cli.audit import run_audit

    workers = {"engine": engine, "jobs": jobs, "address": address}
    raise typer.Exit(run_audit(plan, out, workers, resume, budget, dry_run, quiet, seeds))


@app.command()
def demo(out: Out = None, engine: Engine = "processes", jobs: Jobs = None, quiet: Quiet = False) -> None:
    """Run a small audit on bundled and synthetic data, without any download."""
    from fedxray.cli.audit import run_demo

    raise typer.Exit(run_demo(out or Path("fedxray-out", "demo"), engine, jobs, quiet))


@app.command()
def report(
    folder: Folder,
    show_private: Annotated[
        bool, typer.Option("--show-private", help="Write a copy that shows private records.")
    ] = False,
    figures: Annotated[
        str, typer.Option("--figures", help="Formats of figures/: svg, pdf, png, comma-separated.")
    ] = "svg",
    annex: Annotated[
        bool, typer.Option("--annex", help="Write annex.html, pages to sign, and privacy-card.json instead.")
    ] = False,
) -> None:
    """Rewrite report.html, report.md and figures/ from the results of an audit, or the page of a reproduction."""
    from fedxray.audit.judge.results import RESULTS
    from fedxray.report import build_report

    # Only a reproduction has no results of its own; its code imports torch, a report does not.
    if not (folder / RESULTS).is_file():
        from fedxray.reproduce.run import is_reproduction, rebuild

        if is_reproduction(folder):
            print(rebuild(folder))
            return
    if annex:
        from fedxray.report.annex import write_annex

        print("\n".join(map(str, write_annex(folder))))
        return
    formats = tuple(part.strip() for part in figures.split(",") if part.strip())
    print(build_report(folder, show_private=show_private, formats=formats))


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A name of `fedxray list reproductions`.", metavar="[NAME]")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All reproductions, and the scoreboard of their claims; continues by itself.")
    ] = False,
    scale: Annotated[
        str, typer.Option("--scale", help="small (minutes to hours, see --dry-run) or paper (the published settings).")
    ] = "small",
    clients: Annotated[
        int | None, typer.Option("--clients", min=1, help="Number of attacked clients; default: by scale.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Number of repeated runs; default: by scale.")
    ] = None,
    row: Annotated[list[str] | None, typer.Option("--row", help="Only this row of the table; repeatable.")] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", help="Only these columns (attacks), comma-separated.")
    ] = None,
    out: Out = None,
    engine: Engine = "processes",
    jobs: Jobs = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue, or add clients, seeds, rows or columns.")] = False,
    no_controls: Annotated[
        bool, typer.Option("--no-controls", help="Skip the controls of attacks; they double long runs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print rows, cases, time and disk needed.")] = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a published table: run its rows as audits, print our numbers beside the paper's."""
    from fedxray.cli.reproduce import run_all, run_reproduction
    from fedxray.errors import BadInput
    from fedxray.reproduce.base import Request

    asked = Request(scale=scale, clients=clients, seeds=seeds, controls=not no_controls)
    if (name is None) != every or (every and (row or columns)):
        remedy = "Give one of them; --row and --columns belong to one NAME."
        raise BadInput("reproduce", expected="either NAME or --all", got="neither, or both", remedy=remedy)
    if name is None:
        raise typer.Exit(run_all(asked, out, engine, jobs, dry_run, quiet))
    raise typer.Exit(run_reproduction(name, asked, row or [], columns, out, engine, jobs, resume, dry_run, quiet))


@app.command()
def purge(
    folder: Folder, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False
) -> None:
    """Delete the private part of an audit (transcripts, tensors); results and report are kept."""
    from fedxray.audit.run import store

    store.read_marker(folder)
    if not yes:
        try:
            answer = input(f"Delete {folder / 'private'} permanently? [y/N] ")
        except EOFError:
            raise FedxrayError(
                "no confirmation received; nothing was deleted. Use --yes to delete without confirmation."
            ) from None
        if answer.strip().lower() not in ("y", "yes"):
            print("Nothing was deleted.")
            return
    print(f"Deleted {folder / 'private'}." if store.purge(folder) else f"There is no {folder / 'private'}.")


@app.command(name="list")
def list_names(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="attacks, defences, datasets, models, metrics, roles, grants, floors, restorers or reproductions.",
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Option(
            "--for", help="With attacks: which can run on this plan's data, and how long.", metavar="PLAN.toml"
        ),
    ] = None,
) -> None:
    """List attacks, defences, datasets, models, metrics, roles, grants, floors, restorers or reproductions."""
    from fedxray.cli.show import lines_of, warnings_of

    if plan is not None:
        from fedxray.cli.show import fitting_for

        lines = fitting_for(kind, plan)
    else:
        lines = lines_of(kind)
    for line in lines:
        _print(line)
    _warn(warnings_of([kind]))


@app.command()
def show(name: Annotated[str, typer.Argument(help="A name of `fedxray list`.")]) -> None:
    """Explain one name: what it does, its settings, what it needs."""
    from fedxray.cli.show import kinds_of, page_of, warnings_of

    _print(page_of(name))
    _warn(warnings_of(kinds_of(name)))


@data_app.command()
def get(name: Annotated[str, typer.Argument(help="A data set of `fedxray list datasets`.")]) -> None:
    """Download a data set and verify it, or explain what to do without a network."""
    from fedxray.data.download import fetch

    for file in fetch(name):
        typer.echo(file)
    typer.echo(f"{name} is ready.")


def _warn(sentences: list[str]) -> None:
    """Print warnings, each on one line of the standard error."""
    for sentence in sentences:
        print(f"fedxray: warning: {_harmless(sentence)}", file=sys.stderr)


def _print(text: str) -> None:
    """Print; a closed pipe, as in `fedxray list attacks | head -1`, is no error."""
    try:
        typer.echo(text)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit from None


@app.command()
def gate(
    folder: Folder,
    policy: Policy = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", help="Also write SARIF to this file.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Now the default; kept for old scripts.")] = False,
) -> None:
    """Check the limits of an audit on its deployed defence; exit 1 if one fails, 3 if one is inconclusive."""
    from fedxray.cli.decide import run_gate

    raise typer.Exit(run_gate(folder, policy, junit, sarif))


@app.command()
def recommend(folder: Folder, policy: Policy = None) -> None:
    """Recommend the defence that keeps every limit at the least cost in utility; exit 1 if none does."""
    from fedxray.cli.decide import run_recommend

    raise typer.Exit(run_recommend(folder, policy))


@app.command()
def claim(
    subject: Annotated[
        str,
        typer.Argument(help="The folder of an audit, or dp-sgd, flower-local-dp or nvflare-svt.", metavar="DIR|NAME"),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(help="Settings of NAME, as epsilon=10; of DIR: the epsilon claimed.", metavar="KEY=VALUE"),
    ] = None,
) -> None:
    """Check a privacy claim: epsilon configured, accounted and measured side by side, with what they mean."""
    from fedxray.cli.decide import run_claim

    run_claim(subject, settings or [])


@app.command(name="compare")
def compare_audits(
    first: Annotated[Path, typer.Argument(help="The folder of an audit.", metavar="DIR1")],
    second: Annotated[Path, typer.Argument(help="The folder of a later or another audit.", metavar="DIR2")],
    other_data: Annotated[
        bool, typer.Option("--other-data", help="Compare also where the audits are of different data.")
    ] = False,
) -> None:
    """List what leaks more or has less utility in DIR2 than in DIR1, beyond the intervals; exit 1 if anything does."""
    from fedxray.audit.judge.compare import compare
    from fedxray.audit.judge.results import read_results
    from fedxray.cli.decide import compare_lines

    comparison = compare(read_results(first), read_results(second), other_data=other_data)
    print("\n".join(compare_lines(comparison)))
    raise typer.Exit(1 if comparison.worse else 0)


@app.command(name="train-prior")
def train_prior(
    out: Annotated[Path, typer.Option("--out", help="A new folder for the prior.")],
    data: Annotated[
        str | None, typer.Option("--data", help="Public images: a data set of `fedxray list datasets`, or a folder.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Instead of --data: images that no client of this plan holds.")
    ] = None,
    size: Annotated[int | None, typer.Option("--size", min=4, help="Pixels per side.")] = None,
    part: Annotated[str | None, typer.Option("--part", help="Part of the data set: train or test.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Use only the first N images.")] = None,
    kind: Annotated[
        str, typer.Option("--kind", help="ddpm (U-Net), dit (transformer) or gan (restoring network).")
    ] = "ddpm",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps.")] = 2000,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Images per step.")] = 32,
    width: Annotated[int, typer.Option("--width", min=8, help="Channels, a multiple of 8.")] = 32,
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="Initial learning rate of Adam.")] = 1e-3,
    flip: Annotated[bool, typer.Option("--flip", help="Also train on mirrored images.")] = False,
    scale: Annotated[int, typer.Option("--scale", min=1, help="gan: block size of the averaging.")] = 1,
    noise: Annotated[float, typer.Option("--noise", help="gan: largest standard deviation of added noise.")] = 0.15,
    seed: Annotated[int, typer.Option("--seed", help="Seed of all random draws.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Train a small image prior for restorers on public images; its card.json lists what it was trained on."""
    from fedxray.cli.prior import run_training

    settings = {
        "kind": kind, "steps": steps, "batch": batch, "width": width, "learning_rate": learning_rate,
        "flip": flip, "scale": scale, "noise": noise, "seed": seed,
    }  # fmt: skip
    run_training(data, plan, size, part, limit, out, settings, quiet)
