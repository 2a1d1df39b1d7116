"""The public interface in Python: what it is called, that it is there, and that it costs nothing to import."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import fedxray
import fedxray.attacks
from fedxray.attacks.base import Attack
from fedxray.audit import catalog

# What users rely on. A name may be added; taking one away breaks programs and needs a new major version.
STORED = [
    "BadInput", "Dataset", "Evidence", "Federation", "FedxrayError", "Recipe", "Records", "Refused", "Scores", "Space",
    "Transcript", "View", "__version__", "build", "build_report", "continue_run", "disclose", "fork",
    "load", "read_plan", "read_transcript", "roles", "run_audit", "score", "simulate", "split", "write_transcript",
]  # fmt: skip
HEAVY = ("torch", "numpy", "sklearn", "scipy", "matplotlib", "pydantic", "jinja2")


def test_the_public_names_are_the_stored_ones() -> None:
    assert list(fedxray.__all__) == STORED == sorted(STORED)
    assert dir(fedxray) == STORED


@pytest.mark.parametrize("name", STORED)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(fedxray, name) is not None


def test_every_name_says_where_it_lives() -> None:
    assert sorted([*fedxray._HOMES, "__version__"]) == STORED


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = fedxray.simulat
    with pytest.raises(AttributeError, match="no attribute 'Dfl'"):
        _ = fedxray.attacks.Dfl


def test_the_version_is_that_of_the_distribution() -> None:
    assert fedxray.__version__ == importlib.metadata.version("fedxray")


def test_modules_can_still_be_imported_from_the_package() -> None:
    from fedxray import imaging, seeds

    assert seeds.fork is fedxray.fork and imaging.__name__ == "fedxray.imaging"


@pytest.mark.parametrize("name", sorted(catalog.ATTACKS))
def test_every_attack_can_be_imported_by_the_name_of_its_class(name: str) -> None:
    entry = catalog.resolve("attacks", name)
    assert getattr(fedxray.attacks, entry.__name__) is entry
    assert entry.__name__ in dir(fedxray.attacks)


def test_nothing_but_attacks_is_offered() -> None:
    assert all(issubclass(getattr(fedxray.attacks, name), Attack) for name in dir(fedxray.attacks))


@pytest.mark.parametrize("module", ["fedxray", "fedxray.attacks"])
def test_importing_is_light(module: str) -> None:
    question = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
