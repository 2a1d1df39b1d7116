"""Attacks, defences, data sets and models of other installed packages, found through their entry points.

A package offers them in its pyproject.toml, each by the name that a plan uses:

    [project.entry-points."fedxray.attacks"]
    membership-entropy = "my_package.attacks:MembershipEntropy"

The groups are fedxray.attacks, fedxray.defences, fedxray.datasets and fedxray.models. Names are read from the metadata
of installed packages, late and once; a package is imported only when one of its names is used, so a broken one
disturbs nothing else. A built-in name stays built in: the plug-in is ignored, and `ignored` states it. A name that two
packages offer is refused when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from fedxray.errors import BadInput, printable, unknown_name
from fedxray.lookup import load, load_factory

GROUPS = {kind: f"fedxray.{kind}" for kind in ("attacks", "defences", "datasets", "models")}
USABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # no +, which joins the names of defences
REMEDY = "Correct the package that offers it, or uninstall it."


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One entry point: the name that a plan uses, "module:object" behind it, and the package that offers it."""

    name: str
    spec: str
    distribution: str
    version: str

    @property
    def package(self) -> str:
        """The package with its version."""
        return f"{self.distribution} {self.version}"

    @property
    def source(self) -> str:
        """Where it comes from, as lists and results state it."""
        return f"third-party, from {self.package}"


@cache
def offered(kind: str) -> Mapping[str, tuple[Plugin, ...]]:
    """All plug-ins of a kind by name, in the order of names; several packages may offer the same name."""
    by_name: dict[str, list[Plugin]] = {}
    for entry in entry_points(group=GROUPS[kind]) if kind in GROUPS else ():
        package = ("an unnamed package", "") if entry.dist is None else (entry.dist.name, entry.dist.version)
        distribution, version = map(printable, package)
        spec = entry.value.partition("[")[0].replace(" ", "")  # without extras, which nothing here installs
        plugin = Plugin(name=entry.name, spec=spec, distribution=distribution, version=version)
        by_name.setdefault(entry.name, []).append(plugin)
    return {name: tuple(by_name[name]) for name in sorted(by_name)}


def table(kind: str, built_in: Mapping[str, Any]) -> dict[str, Any]:
    """The built-in entries of a kind, then those of plug-ins as "module:object"."""
    more = {name: plugins[0].spec for name, plugins in offered(kind).items() if USABLE.fullmatch(name)}
    return {**built_in, **{name: spec for name, spec in more.items() if name not in built_in}}


def ignored(kind: str, built_in: Mapping[str, Any]) -> list[str]:
    """One sentence for each plug-in of a kind that cannot be used under its name."""
    sentences = []
    for name, plugins in offered(kind).items():
        usable = USABLE.fullmatch(name)
        if usable and name not in built_in:
            continue
        reason = "that name is built in" if usable else "a name is made of letters, digits, dots and dashes"
        sentences += [
            f"{printable(name)} of {plugin.package} is ignored in {GROUPS[kind]}: {reason}" for plugin in plugins
        ]
    return sentences


def find(kind: str, name: str, built_in: Mapping[str, Any], argument: str) -> Plugin | None:
    """The plug-in behind a name, None for a built-in name; a name that two packages offer is refused."""
    if name in built_in or name not in table(kind, built_in):
        return None
    plugin, *others = offered(kind)[name]
    if others:
        raise BadInput(
            argument,
            expected=f"one package that offers {name}",
            got=" and ".join(one.package for one in (plugin, *others)),
            remedy="Uninstall all but one.",
        )
    return plugin


def resolve(kind: str, name: str, built_in: Mapping[str, Any], argument: str) -> Any:
    """The object behind a built-in name or a plug-in's, imported now; a plug-in's error states its file and line."""
    plugin = find(kind, name, built_in, argument)
    if plugin is not None:
        return load_plugin(plugin, argument)
    if name not in built_in:
        raise unknown_name(argument, name, table(kind, built_in))
    entry = built_in[name]
    return load(entry) if isinstance(entry, str) else entry


def load_plugin(plugin: Plugin, argument: str) -> Any:
    """The class or function of a plug-in; a refusal names the package."""
    try:
        return load_factory(plugin.spec, argument)
    except BadInput as error:
        raise BadInput(
            argument, expected=f"{plugin.name} of {plugin.package}: {error.expected}", got=error.got, remedy=REMEDY
        ) from error
