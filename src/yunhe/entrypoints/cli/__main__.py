"""``python -m yunhe.entrypoints.cli`` is ``yunhe``."""

from yunhe.entrypoints.cli.main import main

main()
