"""How a key of a plan is declared: its type, the values it takes in words, its default and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.fields import FieldInfo

REQUIRED: Any = ...


def key(default: Any, values: str, about: str, **limits: Any) -> Any:
    """A key with its default, the values it takes, and one sentence about it; limits are pydantic's."""
    more: dict[str, JsonValue] = {"values": values}
    if isinstance(default, list | dict):
        return Field(
            default_factory=lambda: type(default)(default),
            description=about,
            json_schema_extra=more,
            **limits,
        )
    return Field(default, description=about, json_schema_extra=more, **limits)


def values_of(field: FieldInfo) -> str:
    """The values a key takes, in words."""
    extra = field.json_schema_extra
    return str(extra["values"]) if isinstance(extra, dict) else "a valid value"


class Section(BaseModel):
    """A table of a plan: unknown keys are refused, nothing is converted."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


class OpenSection(Section):
    """A table whose other keys are settings of what it names; they are checked against that."""

    settings: dict[str, Any] = Field(default_factory=dict, exclude=True)

    @model_validator(mode="before")
    @classmethod
    def gather_settings(cls, given: Any) -> Any:
        """Move every key that is not fixed into `settings`."""
        if not isinstance(given, Mapping):
            return given
        fixed = key_names(cls)
        inside = {name: value for name, value in given.items() if name in fixed}
        return inside | {"settings": {name: value for name, value in given.items() if name not in fixed}}


def key_names(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a section as a plan writes them."""
    named = {field.alias or name: field for name, field in section.model_fields.items()}
    return {name: field for name, field in named.items() if not field.exclude}
