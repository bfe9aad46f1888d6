"""Hot loops are plain Python until there is enough work to be worth compiling them.

A module of kernels lists its functions in ``KERNELS``, callees first. ``compile_kernels`` replaces each by its compiled
form, so callers must reach them through the module (``kernels.best_node``). On a handful of nodes the plain functions
are fast enough, and numba, which takes half a second and 100 MB to load, is never imported.
"""

import importlib
import logging
from types import ModuleType
from typing import Any

log = logging.getLogger(__name__)

_COMPILED: set[str] = set()
_COMPILED_FORM: dict[Any, Any] = {}


def compile_kernels(module: ModuleType) -> None:
    """Compile the kernels of *module*, once; machine code is kept on disk where there is somewhere to keep it."""
    if module.__name__ in _COMPILED:
        return
    _COMPILED.add(module.__name__)
    numba: Any = importlib.import_module("numba")
    for name, value in list(vars(module).items()):
        if callable(value) and value in _COMPILED_FORM:  # a kernel of another module
            setattr(module, name, _COMPILED_FORM[value])
    for name in module.KERNELS:
        plain = getattr(module, name)
        try:
            compiled = _surviving_stale_cache(numba.njit(cache=True)(plain))
        except RuntimeError:  # neither beside the source nor in the user's cache directory may we write
            compiled = numba.njit(plain)
        _COMPILED_FORM[plain] = compiled
        setattr(module, name, compiled)


def _surviving_stale_cache(compiled: Any) -> Any:
    """Return a kernel that is compiled anew where its cache cannot be read.

    The cache of an earlier version may name classes that are not there any more.
    """
    cache: Any = compiled._cache  # noqa: SLF001 - numba has no public way to do this
    load = cache.load_overload

    def load_or_forget(*asked: Any) -> Any:
        try:
            return load(*asked)
        except Exception as error:  # noqa: BLE001 - unpickling raises whatever the missing class makes it raise
            log.info("cached kernel dropped", extra={"kernel": compiled.__name__, "problem": str(error)})
            cache.flush()
            return None

    cache.load_overload = load_or_forget
    return compiled
