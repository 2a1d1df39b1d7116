"""The project's own house rules: sizes, paths, set-up and the strictness of a CI run."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = sorted((ROOT / "fedxray").rglob("*.py"))
NOT_OURS = {"__pycache__", "build", "dist", "fedxray-out", "fedxray.egg-info", "site", "venv"}
HIDDEN_BUT_OURS = {".ci", ".gitignore", ".pre-commit-config.yaml", ".github"}
TEXT = {"", ".css", ".html", ".in", ".js", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
MACHINE_PATHS = re.compile(r"(?<![\w.:/-])/(work|root|home/\w+|Users/\w+|opt/\w+)\b|\.\./shared|file:///(?!nowhere)")
INDEXES = re.compile(r"(?:index[-_]url|INDEX_URL|TORCH_INDEX)\W{1,3}(https?://[^\s\"'`]+)")
PUBLIC_INDEXES = ("https://pypi.org/", "https://download.pytorch.org/")


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def project_texts() -> Iterator[tuple[str, str]]:
    for folder, folders, files in os.walk(ROOT):
        kept = [name for name in folders + files if name not in NOT_OURS]
        kept = [name for name in kept if not name.startswith(".") or name in HIDDEN_BUT_OURS]
        folders[:] = [name for name in folders if name in kept]
        for path in (Path(folder) / name for name in files if name in kept):
            if path.suffix in TEXT and path != Path(__file__).resolve():
                yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_no_file_names_a_machine_path() -> None:
    found = [
        f"{name}: {match.group()}"
        for name, text in project_texts()
        for match in MACHINE_PATHS.finditer(text)
        # The one outside path of the project: where CI looks for data sets.
        if not (name == ".ci/run" and match.group().startswith(".."))
    ]
    assert not found


def test_no_file_names_a_package_index_that_is_not_public() -> None:
    found = {url for _, text in project_texts() for url in INDEXES.findall(text)}
    assert found and all(url.startswith(PUBLIC_INDEXES) for url in found), found


def test_the_search_for_paths_can_fail() -> None:
    bad = [
        part.replace("|", "/") for part in ("see |home|ann|data", "(|work|x)", "..|shared|data", "|root", "'|opt|x'")
    ]
    good = ["https://example.org/home/x", "a/work/b", "docs/root", "n/optimum", "./opt/x", "/etc/passwd"]
    assert all(MACHINE_PATHS.search(text) for text in bad)
    assert not any(MACHINE_PATHS.search(text) for text in good)


def test_package_files_and_functions_are_short() -> None:
    long = []
    for path in PACKAGE:
        text = path.read_text(encoding="utf-8")
        if len(text.splitlines()) >= 800:
            long.append(f"{path.relative_to(ROOT)}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines >= 60:
                    long.append(f"{path.relative_to(ROOT)}: {node.name} has {lines} lines")
    assert PACKAGE
    assert not long


def test_every_package_folder_is_a_package() -> None:
    assert not [path.parent for path in PACKAGE if not (path.parent / "__init__.py").is_file()]


def test_the_wheel_takes_every_file_of_the_package() -> None:
    # Hatchling takes whole folders but follows .gitignore, so no pattern of that may match a data file.
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert document["tool"]["hatch"]["build"]["targets"] == {
        "wheel": {"packages": ["fedxray"]},
        "sdist": document["tool"]["hatch"]["build"]["targets"]["sdist"],
    }
    patterns = [line for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split() if line]
    files = [
        path.relative_to(ROOT)
        for path in (ROOT / "fedxray").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    assert files
    assert not [path for path in files for pattern in patterns if path.match(pattern.strip("/"))]


def test_types_reach_users_of_an_editable_install() -> None:
    # An import hook, which other backends install, hides the package from type checkers; a plain path does not.
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert document["build-system"]["build-backend"] == "hatchling.build"
    assert (ROOT / "fedxray" / "py.typed").is_file()


def test_makefile_keeps_to_old_make_and_posix_tools() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for script in (ROOT / "scripts").glob("*.sh"):
        text += script.read_text(encoding="utf-8")
    newer = [r"\bnproc\b", r"\btimeout\b", r"readlink\s+-f", r"\brealpath\b", r"sed -i", r"\[\[", r"\bmapfile\b"]
    newer += [r"\.ONESHELL", r"\.SHELLFLAGS", r"\$\(file ", r"!=\s*\$?\(?shell", r"::="]
    assert not [word for word in newer if re.search(word, text)]


def test_version_is_the_same_everywhere() -> None:
    version = project()["version"]
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert importlib.metadata.version("fedxray") == version


def test_constraints_pin_every_dependency() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)
    pinned = {normal(pin.split("==")[0]) for pin in pins}
    extras = project()["optional-dependencies"]
    wanted = [*project()["dependencies"], *(name for names in extras.values() for name in names)]
    names = {normal(re.match(r"[\w.-]+", requirement).group()) for requirement in wanted} - {"fedxray"}
    assert names <= pinned, names - pinned
    assert "torch==2.13.0" in pins and "torchvision" not in pinned


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_foreign_torchvision_beside_the_cpu_build_of_torch() -> None:
    # A torchvision built for CUDA breaks the import of other packages by its mere presence.
    installed = {normal(d.metadata["Name"]): d.version for d in importlib.metadata.distributions()}
    if installed["torch"].endswith("+cpu"):
        assert installed.get("torchvision", "+cpu").endswith("+cpu")


def test_the_command_line_does_not_import_heavy_packages() -> None:
    heavy = ("torch", "scipy", "sklearn", "matplotlib", "opacus", "optuna", "PIL", "skimage")
    code = f"import sys, fedxray.cli; print([name for name in {heavy} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert answer.stdout.strip() == "[]"


def make_venv(folder: Path, *arguments: str, python: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run scripts/make_venv.sh where the only Python on PATH is a made-up one."""
    programs = folder / "bin"
    programs.mkdir()
    if python is not None:
        (programs / "python3").write_text("#!/bin/sh\n" + python)
        (programs / "python3").chmod(0o755)
    (programs / "rm").symlink_to("/bin/rm")
    script = str(ROOT / "scripts" / "make_venv.sh")
    command = ["/bin/sh", script, str(folder / "env"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": str(programs)})


FAKE = 'case "$*" in *version_info*) echo {version} ;; *ensurepip*) exit {ensurepip} ;; *) exit 1 ;; esac\n'


@pytest.mark.parametrize(
    ("python", "arguments", "said"),
    [
        (None, (), "found: none."),
        (FAKE.format(version="3.9", ensurepip=0), (), "found: python3=3.9."),
        (FAKE.format(version="3.15", ensurepip=0), (), "found: python3=3.15."),
        (FAKE.format(version="3.12", ensurepip=1), (), "sudo apt install python3.12-venv"),
        (FAKE.format(version="3.12", ensurepip=0), (), "its message is above"),
        (FAKE.format(version="3.12", ensurepip=0), ("python3.13",), "PYTHON=python3.13 does not run."),
    ],
)
def test_set_up_says_what_is_missing(tmp_path: Path, python: str | None, arguments: tuple[str, ...], said: str) -> None:
    answer = make_venv(tmp_path, *arguments, python=python)
    assert answer.returncode == 1
    assert said in answer.stderr
    assert not (tmp_path / "env").exists()


def test_set_up_and_metadata_name_the_same_pythons() -> None:
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project()["requires-python"]).groups()
    versions = [f"3.{minor}" for minor in range(int(low), int(high))]
    script = (ROOT / "scripts" / "make_venv.sh").read_text(encoding="utf-8")
    assert f"case $1 in {' | '.join(versions)})" in script
    assert " ".join(f"python{version}" for version in versions) in script
    assert all(f"Programming Language :: Python :: {version}" in project()["classifiers"] for version in versions)


SKIPPING = """
import pytest

def test_data(data_folder):
    pass

def test_extra(extra):
    extra("no_such_module")

def test_import():
    pytest.importorskip("no_such_module")

def test_other():
    pytest.skip("only on another system")

@pytest.mark.xfail(reason="needs a better idea")
def test_expected():
    assert False
"""


@pytest.mark.parametrize(
    ("strict", "outcome"), [("0", {"skipped": 4}), ("1", {"skipped": 1, "failed": 2, "errors": 1})]
)
def test_a_strict_run_fails_what_it_cannot_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, strict: str, outcome: dict[str, int]
) -> None:
    monkeypatch.setenv("FEDXRAY_STRICT", strict)
    monkeypatch.delenv("FEDXRAY_DATA", raising=False)
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(conftest.replace('pytest_plugins = ["pytester"]', ""))
    pytester.makeini("[pytest]\nmarkers =\n    data: reads data\n")
    pytester.makepyfile(SKIPPING)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--strict-markers")
    result.assert_outcomes(xfailed=1, **outcome)
    if strict == "1":
        result.stdout.fnmatch_lines(["*needs the data folder: set FEDXRAY_DATA (FEDXRAY_STRICT=1*"])


def test_a_strict_run_fails_a_module_that_skips_itself(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDXRAY_STRICT", "1")
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(conftest.replace('pytest_plugins = ["pytester"]', ""))
    pytester.makepyfile('import pytest\npytest.importorskip("no_such_module")\ndef test_one(): pass\n')
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret != pytest.ExitCode.OK
    result.assert_outcomes(errors=1)


def test_a_test_that_leaves_the_default_dtype_changed_fails(pytester: pytest.Pytester) -> None:
    conftest = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    pytester.makeconftest(conftest.replace('pytest_plugins = ["pytester"]', ""))
    pytester.makepyfile(
        "import torch\n"
        "def test_leaky(): torch.set_default_dtype(torch.float64)\n"
        "def test_next(): assert torch.get_default_dtype() == torch.float32\n"
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*the test left (default dtype*"])


def test_ci_refuses_to_run_without_data(tmp_path: Path) -> None:
    environment = os.environ | {"FEDXRAY_DATA": str(tmp_path / "absent")}
    answer = subprocess.run([ROOT / ".ci" / "run"], capture_output=True, text=True, env=environment)
    assert answer.returncode == 2
    assert "nothing was run" in answer.stderr and str(tmp_path / "absent") in answer.stderr
