"""fedxray shows what a federated-learning set-up gives away; the names below are its public interface in Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedxray.adversary import roles
    from fedxray.adversary.disclose import disclose
    from fedxray.adversary.view import View
    from fedxray.attacks.evidence import Evidence
    from fedxray.audit.plan import read_plan
    from fedxray.audit.run.audit import run_audit
    from fedxray.data.catalog import load
    from fedxray.data.dataset import Dataset, Records, Space
    from fedxray.data.split import split
    from fedxray.errors import BadInput, FedxrayError, Refused
    from fedxray.federation.folder import read_transcript, write_transcript
    from fedxray.federation.recipe import Recipe
    from fedxray.federation.round_loop import continue_run, simulate
    from fedxray.federation.setting import Federation
    from fedxray.federation.transcript import Transcript
    from fedxray.metrics.records import Scores
    from fedxray.metrics.scoring import score
    from fedxray.models import build
    from fedxray.report import build_report
    from fedxray.seeds import fork

    __version__: str

__all__ = [
    "BadInput",
    "Dataset",
    "Evidence",
    "Federation",
    "FedxrayError",
    "Recipe",
    "Records",
    "Refused",
    "Scores",
    "Space",
    "Transcript",
    "View",
    "__version__",
    "build",
    "build_report",
    "continue_run",
    "disclose",
    "fork",
    "load",
    "read_plan",
    "read_transcript",
    "roles",
    "run_audit",
    "score",
    "simulate",
    "split",
    "write_transcript",
]

# Where each name is found when it is first asked for, so that `import fedxray` costs nothing; no colon: the module.
_HOMES = {
    "BadInput": "fedxray.errors:BadInput",
    "Dataset": "fedxray.data.dataset:Dataset",
    "Evidence": "fedxray.attacks.evidence:Evidence",
    "Federation": "fedxray.federation.setting:Federation",
    "FedxrayError": "fedxray.errors:FedxrayError",
    "Recipe": "fedxray.federation.recipe:Recipe",
    "Records": "fedxray.data.dataset:Records",
    "Refused": "fedxray.errors:Refused",
    "Scores": "fedxray.metrics.records:Scores",
    "Space": "fedxray.data.dataset:Space",
    "Transcript": "fedxray.federation.transcript:Transcript",
    "View": "fedxray.adversary.view:View",
    "build": "fedxray.models.factory:build",
    "build_report": "fedxray.report.build:build_report",
    "continue_run": "fedxray.federation.round_loop:continue_run",
    "disclose": "fedxray.adversary.disclose:disclose",
    "fork": "fedxray.seeds:fork",
    "load": "fedxray.data.catalog:load",
    "read_plan": "fedxray.audit.plan:read_plan",
    "read_transcript": "fedxray.federation.folder:read_transcript",
    "roles": "fedxray.adversary.roles",
    "run_audit": "fedxray.audit.run.audit:run_audit",
    "score": "fedxray.metrics.scoring:score",
    "simulate": "fedxray.federation.round_loop:simulate",
    "split": "fedxray.data.split:split",
    "write_transcript": "fedxray.federation.folder:write_transcript",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "__version__":
        from importlib.metadata import version

        return version("fedxray")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    """The public names."""
    return list(__all__)
