"""A plugin's manifest: what it is, read before any of its code.

It is a TOML file, ``plugin.toml``, beside the code. ``read_manifest`` refuses one that is incomplete, so that
whatever is hosted can be listed, explained and limited without running it.
"""

from pathlib import Path
from typing import Any

import msgspec

from yunhe.infrastructure.contract.model import (
    CONTRACT_VERSION,
    Account,
    LaunchOrder,
    Meters,
    Node,
    Observed,
    Power,
    Quota,
    Region,
    Spec,
    UsageMinute,
)
from yunhe.kernel.errors import FieldProblem, InvalidInputError, UnsupportedError
from yunhe.kernel.resources import Resources
from yunhe.kernel.validation import read

MAPPED: tuple[type[msgspec.Struct], ...] = (
    LaunchOrder,
    Resources,
    Node,
    Observed,
    Meters,
    Region,
    Spec,
    Quota,
    Account,
    UsageMinute,
)
"""The types whose every field a plugin says how it maps to its engine's."""
SPOKEN = frozenset({CONTRACT_VERSION})
"""The versions of the contract that this platform can speak with a plugin."""


class FieldMapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one of our fields and one of the engine's correspond."""

    ours: str
    """``LaunchOrder.timeout_s`` …"""
    theirs: str = ""
    """The engine's own word for it; empty: it has none, and ``note`` says what is done instead or why it is refused."""
    note: str = ""


class PluginLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a plugin may take of the platform that hosts it."""

    memory_mib: int = 512
    """Of its process, where it has its own."""
    calls: int = 64
    """In flight at once; more wait."""
    call_timeout_s: float = 30.0


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a plugin is, as its maker declares it."""

    name: str
    """Also the kind of its pools: ``yunhe pool add NAME …``."""
    version: str
    vendor: str
    summary: str
    contract: int = CONTRACT_VERSION
    entry: str = ""
    """For one that runs in process: ``package.module:attribute``, called without arguments for its ``Kind``."""
    command: tuple[str, ...] = ()
    """For one that is its own process: what to run, relative to the manifest's folder."""
    target: str = ""
    """What the word after the kind means in ``yunhe pool add NAME TARGET``; empty: there is none."""
    options: dict[str, str] = {}
    """Every option of its pools, with a sentence on each."""
    admin_options: tuple[str, ...] = ()
    """Those of them that only an administrator may set: they run programs, or read files of the server."""
    powers: tuple[Power, ...] = ()
    """Those it may have; what an engine really can is in its description."""
    missing: dict[Power, str] = {}
    """Each power it never has, with a sentence saying why."""
    limits: PluginLimits = PluginLimits()
    fields: tuple[FieldMapping, ...] = ()


def read_manifest(path: Path) -> Manifest:
    """Return the manifest at *path*, or say everything that is wrong with it."""
    import tomllib  # noqa: PLC0415 - clients know manifests and read none

    try:
        declared = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _not_a_manifest(str(path), str(error), (FieldProblem("manifest", str(error)),)) from None
    return check_manifest(declared, str(path))


def check_manifest(declared: dict[str, Any], source: str) -> Manifest:
    """Return what is *declared* as a manifest, or say everything that is wrong with it.

    The contract's version comes first: what another version means by the rest is not ours to judge.
    """
    contract = declared.get("contract", CONTRACT_VERSION)
    if contract not in SPOKEN:
        raise UnsupportedError(
            f"{source} speaks version {contract} of the plugin contract; this platform speaks {_spoken()}.",
            remedy="Upgrade whichever of the two is older.",
        )
    try:
        manifest = read(declared, Manifest)
    except InvalidInputError as error:
        raise _not_a_manifest(source, error.problem.rstrip("."), error.fields) from None
    problems = [*_identity_problems(manifest), *_power_problems(manifest), *_mapping_problems(manifest)]
    if problems:
        raise InvalidInputError(
            f"The manifest of {manifest.name or source} is incomplete.",
            remedy="Complete it field by field; docs/how-to/write-a-plugin.md tells what each means.",
            fields=tuple(problems),
        )
    return manifest


def _not_a_manifest(source: str, problem: str, fields: tuple[FieldProblem, ...]) -> InvalidInputError:
    return InvalidInputError(
        f"{source} is not a plugin's manifest: {problem}.",
        remedy="Write one with yunhe plugin new, and compare.",
        fields=fields,
    )


def _spoken() -> str:
    return " and ".join(map(str, sorted(SPOKEN)))


def mappable_fields() -> tuple[str, ...]:
    """Return every field of the contract that a plugin must map."""
    return tuple(f"{struct.__name__}.{name}" for struct in MAPPED for name in struct.__struct_fields__)


def _identity_problems(manifest: Manifest) -> list[FieldProblem]:
    problems = [
        FieldProblem(name, "is empty")
        for name in ("name", "version", "vendor", "summary")
        if not getattr(manifest, name)
    ]
    problems += [
        FieldProblem("admin_options", "is none of the options", name)
        for name in manifest.admin_options
        if name not in manifest.options
    ]
    if bool(manifest.entry) == bool(manifest.command):
        problems.append(FieldProblem("entry", "give either entry (in process) or command (own process)"))
    return problems


_LATER = frozenset({Power.FORWARD})
"""Powers that manifests written for the first release of this contract cannot speak of."""


def _power_problems(manifest: Manifest) -> list[FieldProblem]:
    return [
        FieldProblem(f"missing.{power}", "is neither among powers nor said to be missing and why")
        for power in Power
        if (power in manifest.powers) == (power in manifest.missing) and power not in _LATER
    ]


def _mapping_problems(manifest: Manifest) -> list[FieldProblem]:
    mapped = [mapping.ours for mapping in manifest.fields]
    known = mappable_fields()
    problems = [FieldProblem("fields", "is not mapped", ours) for ours in known if ours not in mapped]
    problems += [
        FieldProblem("fields", "is no field of the contract", ours) for ours in mapped if ours not in known
    ]
    problems += [
        FieldProblem("fields", "is mapped more than once", ours)
        for ours in sorted(set(mapped))
        if mapped.count(ours) > 1
    ]
    problems += [
        FieldProblem("fields", "has no word in the engine and no note saying why", mapping.ours)
        for mapping in manifest.fields
        if not mapping.theirs and not mapping.note
    ]
    return problems
