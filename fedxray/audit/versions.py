"""What computed the results."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

OPTIONAL = ("scikit-image", "opacus")  # they explain images and reckon budgets
LIBRARIES = ("fedxray", "torch", "numpy", "scipy", "scikit-learn", "pydantic", "safetensors")


def versions() -> dict[str, str | None]:
    """Python, the system and the libraries; an optional one that is not installed is None."""
    return {
        "python": platform.python_version(),
        "platform": platform.system(),
        **{name: version(name) for name in LIBRARIES},
        **{name: _version_if_there(name) for name in OPTIONAL},
    }


def _version_if_there(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
