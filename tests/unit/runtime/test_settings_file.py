"""What an administrator writes into settings.toml."""

from pathlib import Path

import pytest

from yunhe.kernel.errors import InvalidInputError
from yunhe.runtime.limits import Retention, ServerLimits, SettingsFile, read_settings_file


def test_without_a_file_everything_is_as_by_default(tmp_path: Path) -> None:
    assert read_settings_file(tmp_path) == SettingsFile()


def test_what_the_file_says_counts_and_the_rest_stays(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("[limits]\nrequests_per_s = 50\n[retention]\nblobs_days = 0.5\n")
    assert read_settings_file(tmp_path) == SettingsFile(
        limits=ServerLimits(requests_per_s=50), retention=Retention(blobs_days=0.5)
    )


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[limits]\nconections = 5\n", "limits.conections"),
        ("[limits]\nconnections = 0\n", "limits.connections"),
        ("[limits]\nconnections = 'many'\n", "limits.connections"),
        ("[retention]\nusage_days = -1\n", "retention.usage_days"),
        ("[retention\n", "(whole)"),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, text: str, field: str) -> None:
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(InvalidInputError, match=r"settings\.toml") as refused:
        read_settings_file(tmp_path)
    assert [problem.field for problem in refused.value.fields] == [field]
