"""The conformance kit: the promises of an engine as tests that every engine and every plugin inherits."""

import pytest

pytest.register_assert_rewrite(
    f"{__name__}.basic_promises", f"{__name__}.caller", f"{__name__}.power_promises"
)
