"""Which platform, which key, which project."""

import stat
from pathlib import Path

import pytest

from yunhe.entrypoints.cli.session.context import (
    Config,
    Context,
    config_path,
    current_context,
    load_config,
    save_config,
)
from yunhe.kernel.errors import InvalidInputError, NotFoundError


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YUNHE_HOME", str(tmp_path))
    for name in ("YUNHE_URL", "YUNHE_KEY", "YUNHE_PROJECT", "YUNHE_CA_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_file_there_is_this_machine_and_no_key() -> None:
    assert load_config() == Config()
    assert current_context() == Context()


def test_the_key_can_be_read_by_its_owner_alone() -> None:
    save_config(Config().holding("local", Context(key="yk_secret")))
    assert stat.S_IMODE(config_path().stat().st_mode) == 0o600
    assert load_config().context().key == "yk_secret"


def test_an_option_beats_the_environment_and_that_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    save_config(Config().holding("local", Context(url="http://file", key="file", project="file")))
    monkeypatch.setenv("YUNHE_URL", "http://env")
    monkeypatch.setenv("YUNHE_PROJECT", "env")
    assert current_context("option") == Context(url="http://env", key="file", project="option")
    assert current_context().project == "env"


def test_contexts_are_switched_by_name() -> None:
    config = Config().holding("a", Context(url="http://a")).holding("b", Context(url="http://b"))
    assert config.current == "b"
    assert config.using("a").context().url == "http://a"
    with pytest.raises(NotFoundError):
        config.using("c")
    with pytest.raises(InvalidInputError):
        config.holding("no/such name", Context())


def test_a_broken_file_is_refused_and_left_alone() -> None:
    config_path().write_text("{broken")
    with pytest.raises(InvalidInputError) as caught:
        load_config()
    assert str(config_path()) in caught.value.problem
    assert config_path().read_text() == "{broken"
