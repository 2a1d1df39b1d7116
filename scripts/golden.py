"""Writes and checks golden results: what small audits must report to the last bit while code is only rearranged.

python scripts/golden.py check [NAME ...] [--report]   compare with tests/golden; exit code 1 on a difference
python scripts/golden.py write [NAME ...] [--report]   store the present results there
python scripts/golden.py identities                    store the identities of attacks and the texts of settings

Every plan is run by the command line interface in a temporary folder, on one thread. Times and versions are left out
of the stored results, nothing is rounded. With --report the SHA-256 of each report.md is written or checked too.
Bits depend on the processor and on versions of libraries: environment.json states where the files were written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "tests" / "golden"
REPORTS, ENVIRONMENT, IDENTITIES = (GOLDEN / name for name in ("reports.json", "environment.json", "identities.json"))
# Keys whose values depend on the clock or on what is installed, wherever they occur in results.json.
LEFT_OUT = ("seconds", "cpu_seconds", "versions")
LIBRARIES = ("torch", "numpy", "scipy", "scikit-learn", "scikit-image", "opacus")
ABSENT = "(absent)"
# Settings for defences, several where one is not enough to see every field change.
DEFENCE_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "none": [{}],
    "dp-sgd": [{"epsilon": 8.0}, {"noise_multiplier": 1.1, "clip": 0.5, "sampling": "shuffle", "rounds": 3}],
    "mixup": [{}, {"mix": "drawn", "alpha": 0.4}],
    "gaussian-noise": [{"scale": 0.1}, {"scale": 0.1, "at": "gradients"}],
    "laplace-noise": [{"scale": 0.1}, {"scale": 0.1, "at": "gradients"}],
    "pruning": [{"share": 0.5}, {"share": 0.9, "by": "random", "at": "gradients"}],
    "quantise": [{}, {"bits": 4}],
    "local-bn": [{}, {"keep": "statistics-and-affine"}],
    "nvflare-percentile": [{}],
    "nvflare-svt": [{}],
    "nvflare-exclude": [{"names": "bias$"}],
    "flower-local-dp": [{"clipping_norm": 1.0, "sensitivity": 1e-4, "epsilon": 10.0, "delta": 1e-5}],
    "flower-fixed-clipping": [{"clipping_norm": 1.0}],
    "flower-adaptive-clipping": [{}],
    "flower-secagg": [{}],
    "pruning+quantise": [{"share": 0.5, "bits": 4}],
}


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One audit: its plan, where its results are stored, and the arguments that choose an engine."""

    plan: str
    stored: str
    engine: tuple[str, ...] = ("--engine", "inline")

    def plan_file(self) -> Path:
        """The plan in tests/golden, or else the one that the package comes with."""
        own = GOLDEN / f"{self.plan}.toml"
        return own if own.is_file() else next(ROOT.glob(f"fedxray/**/{self.plan}.toml"))

    def result_file(self) -> Path:
        """The stored results."""
        return GOLDEN / f"{self.stored}.json"


PLANS = (
    "demo-clinic",
    "demo-diabetes",
    "demo-digits",
    "dlf",
    "awa-search",
    "curious-client",
    "local-model-active",
    "membership-dp-sgd",
    "flower",
)
AUDITS = {name: Audit(plan=name, stored=name) for name in PLANS} | {
    "demo-diabetes-processes": Audit(
        plan="demo-diabetes", stored="demo-diabetes", engine=("--engine", "processes", "--jobs", "1")
    )
}


class AuditFailed(Exception):
    """An audit that ended with an error, or whose results cannot be compared."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an audit wrote: its results without times and versions, and the SHA-256 of its report."""

    results: dict[str, Any]
    report: str


def run_audit(audit: Audit) -> Outcome:
    """Run an audit in a temporary folder and return what it wrote."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        folder = Path(name)
        plan = folder / audit.plan_file().name
        shutil.copy(audit.plan_file(), plan)
        if audit.plan_file().parent == GOLDEN:
            shutil.copytree(GOLDEN / "flower", folder / "flower")
            shutil.copy(GOLDEN / "flower_network.py", folder)
        command = [sys.executable, "-m", "fedxray", "audit", str(plan), "--out", str(folder / "out"), "--quiet"]
        ended = subprocess.run(
            [*command, *audit.engine], cwd=ROOT, env=clean_environment(), capture_output=True, text=True
        )
        if ended.returncode != 0:
            raise AuditFailed(f"exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
        text = (folder / "out" / "results.json").read_text(encoding="utf-8")
        if str(folder) in text or str(ROOT) in text:
            raise AuditFailed("results.json holds a path of this machine")
        report = hashlib.sha256((folder / "out" / "report.md").read_bytes()).hexdigest()
        return Outcome(results=without(json.loads(text), LEFT_OUT), report=report)


def clean_environment() -> dict[str, str]:
    """The environment of an audit: this package first, one thread, no GPU, no settings of fedxray."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FEDXRAY_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return own | threads | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}


def without(value: Any, keys: tuple[str, ...]) -> Any:
    """A copy of a JSON value without these keys, at any depth."""
    if isinstance(value, dict):
        return {key: without(inner, keys) for key, inner in value.items() if key not in keys}
    return [without(inner, keys) for inner in value] if isinstance(value, list) else value


def canonical(document: dict[str, Any]) -> str:
    """A document as JSON: keys sorted, floats as repr writes them, one line per item of a top-level list."""
    lines = []
    for key in sorted(document):
        value = document[key]
        if isinstance(value, list) and value:
            items = ",\n  ".join(json.dumps(item, sort_keys=True) for item in value)
            lines.append(f" {json.dumps(key)}: [\n  {items}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(stored: Any, present: Any, path: str = "$") -> Iterator[str]:
    """The JSON paths at which two values differ, each with both values."""
    if isinstance(stored, dict) and isinstance(present, dict):
        for key in sorted(stored.keys() | present.keys()):
            yield from differences(stored.get(key, ABSENT), present.get(key, ABSENT), f"{path}.{key}")
    elif isinstance(stored, list) and isinstance(present, list) and len(stored) == len(present):
        for index, (left, right) in enumerate(zip(stored, present, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif json.dumps(stored, sort_keys=True) != json.dumps(present, sort_keys=True):  # tells 1 from 1.0
        yield f"{path}: stored {shortened(stored)}, now {shortened(present)}"


def shortened(value: Any) -> str:
    """A value as JSON in at most 200 characters; of a list its length too."""
    text = json.dumps(value)
    text = text if len(text) <= 200 else f"{text[:197]}..."
    return f"{len(value)} items {text}" if isinstance(value, list) else text


def environment() -> dict[str, str]:
    """What the bits of results depend on besides the package."""
    import torch

    processor = Path("/proc/cpuinfo")
    lines = processor.read_text().splitlines() if processor.is_file() else []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "vendor": facts.get("vendor_id", ""),
        "family": facts.get("cpu family", ""),  # BLAS chooses its routines by it, and they round differently
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: version(name) for name in LIBRARIES},
    }


def identities() -> dict[str, str]:
    """Identities of all attacks and floors and the texts of defences and of a recipe, by what they belong to.

    Stored answers are named by identities and generators are forked by these texts: a renamed class or field, or
    another default, changes both.
    """
    from fedxray.audit import catalog
    from fedxray.federation.recipe import Recipe
    from fedxray.seeds import spell

    texts = {"recipe": spell(Recipe())}
    for name in sorted(catalog.built_in("attacks")):
        small = dict(catalog.resolve("attacks", name).small)
        for label, settings in (("default", {}), ("small", small)):
            attack = catalog.make_attack(name, settings)
            texts[f"attack {name}, {label}: identity"] = attack.identity()
            texts[f"attack {name}, {label}: text"] = spell(attack)
    for name in sorted(catalog.built_in("floors")):
        texts[f"floor {name}"] = catalog.resolve("floors", name)().identity()
    for (name, kind), _ in sorted(catalog.FLOORS_OF_KIND.items()):
        texts[f"floor {name} of {kind}"] = catalog.floor_for(name, kind).identity()
    for name in sorted({*catalog.built_in("defences"), *DEFENCE_SETTINGS}):
        for settings in DEFENCE_SETTINGS[name]:
            texts[f"defence {name} {json.dumps(settings)}"] = spell(catalog.make_defence(name, settings))
    return texts


def read(path: Path) -> dict[str, Any]:
    """A stored document, empty where there is none."""
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return stored


def check(names: list[str], *, report: bool) -> int:
    """Run audits, print how each compares with what is stored, and return the exit code."""
    elsewhere = list(differences(read(ENVIRONMENT), environment()))
    if elsewhere:
        print("The stored results were written in another environment, bits may differ:", *elsewhere, sep="\n  ")
    wrong, reports = 0, read(REPORTS)
    for name in names:
        began, audit = time.monotonic(), AUDITS[name]
        try:
            outcome = run_audit(audit)
            differing = list(differences(read(audit.result_file()), outcome.results))
            if report:
                differing += differences(reports.get(audit.stored, ABSENT), outcome.report, "report.md")
        except AuditFailed as error:
            differing = [f"the audit itself: {error}"]
        wrong += bool(differing)
        word = f"DIFFERS in {len(differing)} places, first {differing[0]}" if differing else "equal"
        print(f"{name}: {word} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{wrong} of {len(names)} differ." if wrong else f"All {len(names)} are equal.")
    return 1 if wrong else 0


def write(names: list[str], *, report: bool) -> int:
    """Run audits and store their results; an audit that shares a file with another one is left to check."""
    reports = read(REPORTS)
    for name in names:
        audit = AUDITS[name]
        if audit.stored != name:
            continue
        outcome = run_audit(audit)
        audit.result_file().write_text(canonical(outcome.results), encoding="utf-8")
        if report:
            reports[name] = outcome.report
        print(f"{name}: written", flush=True)
    if report:
        write_json(REPORTS, reports)
    write_json(ENVIRONMENT, environment())
    return 0


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a small document, one key per line."""
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main() -> int:
    """Run one of the commands."""
    sys.path.insert(0, str(ROOT))
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("command", choices=("check", "write", "identities"))
    options.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(AUDITS)}; default: all")
    options.add_argument("--report", action="store_true", help="also the SHA-256 of report.md")
    chosen = options.parse_args()
    unknown = sorted(set(chosen.names) - set(AUDITS))
    if unknown:
        options.error(f"unknown {', '.join(unknown)}; known are {', '.join(AUDITS)}")
    if chosen.command == "identities":
        write_json(IDENTITIES, identities())
        return 0
    command = check if chosen.command == "check" else write
    return command(chosen.names or list(AUDITS), report=chosen.report)


if __name__ == "__main__":
    sys.exit(main())
