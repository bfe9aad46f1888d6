"""What an operator says of a pool, checked before anything is written."""

import re

from yunhe.control.pools.model import PoolSpec
from yunhe.infrastructure.contract.manifest import Manifest
from yunhe.kernel.errors import FieldProblem, InvalidInputError
from yunhe.kernel.validation import nearest

_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")


def check_spec(spec: PoolSpec, manifests: dict[str, Manifest]) -> None:
    """Refuse a pool whose kind does not exist or does not understand what is said of it, or whose name is none."""
    manifest = manifests.get(spec.kind)
    if manifest is None:
        meant = nearest(spec.kind, list(manifests))
        raise InvalidInputError(
            f"There is no engine of kind {spec.kind!r}.",
            remedy=f"Use one of: {', '.join(sorted(manifests))}. Another vendor's plugin must have registered"
            " first: the plugin's log says if its key or its contract was refused.",
            fields=(FieldProblem("kind", "is not a registered kind", spec.kind, meant),),
        )
    problems = _not_understood(spec, manifest)
    if problems:
        raise InvalidInputError(
            f"A pool of kind {spec.kind} does not understand {', '.join(p.field for p in problems)}.",
            remedy=f"Its options: {', '.join(sorted(manifest.options)) or 'none'}.",
            fields=tuple(problems),
        )
    _check_name(spec.name)


def _not_understood(spec: PoolSpec, manifest: Manifest) -> list[FieldProblem]:
    known = list(manifest.options)
    problems = [
        FieldProblem(f"options.{name}", "is not an option", value, nearest(name, known))
        for name, value in sorted(spec.options.items())
        if name not in known
    ]
    if spec.target and not manifest.target:
        problems.append(FieldProblem("target", f"a pool of kind {spec.kind} has none", spec.target))
    return problems


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            f"{name!r} cannot name a pool.",
            remedy="Use up to 64 lower-case letters, digits, '.', '_' and '-', beginning and ending with a letter or digit.",
            fields=(FieldProblem("name", "is not a valid name", name),),
        )
