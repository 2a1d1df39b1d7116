"""Builds the plan reference from the declarations of the plan's keys."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedxray.audit.plan.schema import (
    AttackPart,
    CanariesPart,
    DataPart,
    DefencePart,
    FederationPart,
    GatePart,
    ModelPart,
    OpenSection,
    Plan,
    RecipePart,
    TranscriptPart,
    key_names,
    values_of,
)

SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("[data]", DataPart),
    ("[model]", ModelPart),
    ("[federation]", FederationPart),
    ("[[defence]]", DefencePart),
    ("[[attack]]", AttackPart),
    ("[[gate]]", GatePart),
    ("[transcript]", TranscriptPart),
    ("[transcript.recipe]", RecipePart),
    ("[canaries]", CanariesPart),
)
# Settings of what a table names that are worth a line of their own.
WORTH_A_LINE: dict[type[BaseModel], tuple[tuple[str, str, str], ...]] = {
    DataPart: (
        ("column", "a raw column", "by-column: the column that names the holder of a record"),
        ("size", "a whole number, or [height, width]", "own images: pixels to which all are resized"),
        ("ready", "true or false", "own .npz: whether x is what the network gets, so that nothing is scaled"),
        (
            "groups",
            "a table of lists",
            "ready .npz: which columns of x encode one raw column, as { region = [3, 4] }",
        ),
        (
            "use",
            "a column or array",
            "marks each record as train, holdout or public; beside [transcript], without it all were "
            "trained on; in a simulation with an array client, whose each record is",
        ),
    )
}
OPENING = """# Plan reference

A plan is a TOML file; `fedxray audit PLAN.toml` runs it. `[[defence]]`, `[[attack]]` and `seeds` are the axes
of a grid: every attack is run against every defence for every seed. A key that is not listed here, a value
out of range or a name that is not in the catalogue is refused before anything runs.

This page is built by `docs/generate.py`.
"""
CLOSING = """
## `[sweep.LABEL]`

Each key is a list of values of a setting of the defence with that label; the defence is replaced by one for
each combination, labelled `LABEL[key=value]`. For instance `[sweep.gaussian-noise]` with
`scale = [0.01, 0.1]`. The defence itself need not set what is swept, and is not run besides. Only one defence can
be `deployed`, so a swept one cannot: write the value that you deploy as a `[[defence]]` of its own, with a `label`.

## Labels

`attack` and `defence` in results and in `[[gate]]` are labels. They are unique in a plan.

## Paths and programs

Relative paths start at the folder of the plan. A plan with a `factory` is a program: `audit` prints what it
will import; the module may lie beside the plan.
"""


def plan_reference() -> str:
    """Return a Markdown page with every key of a plan."""
    parts = [OPENING, "## Top level\n", _table(Plan)]
    for title, section in SECTIONS:
        parts += [f"\n## `{title}`\n", f"{_sentence(section)}\n", _table(section)]
    return "\n".join(parts) + "\n" + CLOSING


def _sentence(section: type[BaseModel]) -> str:
    return str(section.__doc__).strip()


def _table(section: type[BaseModel]) -> str:
    lines = ["| key | values | default | meaning |", "|---|---|---|---|"]
    for name, field in key_names(section).items():
        cells = (f"`{name}`", values_of(field), _default(field), str(field.description))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    for name, values, about in WORTH_A_LINE.get(section, ()):
        lines.append(f"| `{name}` | {values} |  | {about} |")
    if issubclass(section, OpenSection):
        lines.append("| any other | | | a setting; see [settings](settings.md), or `fedxray show NAME` |")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel) or value in (None, [], {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else repr(value).replace(chr(39), chr(34))}`"
