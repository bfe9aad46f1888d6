"""Which platform this user talks to: contexts in a file only they can read, and the environment over it."""

import os
import re
from pathlib import Path

import msgspec

from yunhe.kernel.errors import InvalidInputError, NotFoundError
from yunhe.runtime.settings import DEFAULT_PORT, default_home
from yunhe.storage.private_files import private_home, write_private

LOCAL = "local"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Context(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A platform, the key to it, and the project to work in."""

    url: str = f"http://127.0.0.1:{DEFAULT_PORT}"
    key: str = ""
    project: str = "default"
    ca_file: str = ""
    """A certificate authority to trust beside the system's."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Every platform this user knows, and the one in use."""

    current: str = LOCAL
    contexts: dict[str, Context] = {}

    def context(self) -> Context:
        """Return the context in use."""
        return self.contexts.get(self.current, Context())

    def holding(self, name: str, context: Context) -> "Config":
        """Return this configuration with *context* under *name*, in use."""
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"{name!r} is not a name for a context.", remedy="Use letters, digits, '-', '_' and '.'."
            )
        return Config(current=name, contexts={**self.contexts, name: context})

    def using(self, name: str) -> "Config":
        """Return this configuration with *name* in use."""
        if name not in self.contexts:
            known = ", ".join(self.contexts) or "none yet"
            raise NotFoundError(
                f"There is no context {name!r}.", remedy=f"Known: {known}. Add one with `yunhe login URL`."
            )
        return Config(current=name, contexts=self.contexts)


def config_path() -> Path:
    """Return where the configuration is kept."""
    return default_home() / "config.json"


def load_config() -> Config:
    """Return the configuration; empty when there is none yet."""
    path = config_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=Config)
    except FileNotFoundError:
        return Config()
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InvalidInputError(
            f"{path} cannot be read: {error}.", remedy="Fix it, or remove it and `yunhe login` again."
        ) from error


def save_config(config: Config) -> Path:
    """Keep *config* where only this user can read it; whole or not at all."""
    path = config_path()
    private_home(path.parent)
    write_private(path, msgspec.json.format(msgspec.json.encode(config)) + b"\n")
    return path


def replace_key(text: str) -> bool:
    """Keep another text of the key in use; return false where it comes from the environment, which is not ours to change."""
    config = load_config()
    if os.environ.get("YUNHE_KEY", "").strip() or config.current not in config.contexts:
        return False
    save_config(config.holding(config.current, msgspec.structs.replace(config.context(), key=text)))
    return True


def current_context(project: str = "") -> Context:
    """Return the context to work with: *project* over ``YUNHE_*`` over the file."""
    context = load_config().context()
    environment = os.environ
    return Context(
        url=environment.get("YUNHE_URL") or context.url,
        key=environment.get("YUNHE_KEY", "").strip() or context.key,
        project=project or environment.get("YUNHE_PROJECT") or context.project,
        ca_file=environment.get("YUNHE_CA_FILE") or context.ca_file,
    )
