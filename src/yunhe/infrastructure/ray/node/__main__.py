"""The entrypoint of every allocation's Ray job."""

from __future__ import annotations

import sys

from yunhe.infrastructure.ray.node.runner import main

sys.exit(main())
