"""What is wrong with a manifest is told at once, field by field."""

import pytest

from yunhe.infrastructure.contract.manifest import check_manifest
from yunhe.kernel.errors import InvalidInputError


def test_every_field_of_the_wrong_type_and_every_unknown_one_is_named() -> None:
    declared = {"name": 7, "version": "1", "vendor": "v", "summary": "s", "powers": ["fly"], "comand": ["x"]}
    with pytest.raises(
        InvalidInputError, match=r"plugin.toml is not a plugin's manifest: 3 fields are wrong\."
    ) as refused:
        check_manifest(declared, "plugin.toml")
    told = {problem.field: problem for problem in refused.value.fields}
    assert set(told) == {"name", "powers[0]", "comand"}
    assert told["comand"].did_you_mean == "command"
