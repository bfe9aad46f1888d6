"""``python -m bench``: run every module here that has a ``main``, or those named on the command line."""

import importlib
import pkgutil
import sys

import bench


def main() -> None:
    """Run the benchmarks."""
    for name in sys.argv[1:] or sorted(found.name for found in pkgutil.iter_modules(bench.__path__)):
        module = importlib.import_module(f"bench.{name}")
        if name != "__main__" and hasattr(module, "main"):
            print(f"\n== {name}: {(module.__doc__ or '').splitlines()[0]}", flush=True)
            module.main()


if __name__ == "__main__":
    main()
