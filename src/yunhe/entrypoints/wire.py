"""The shapes that exist only on the wire between the API and its clients; everything else is a sub-module's own type."""

from typing import Annotated, Any

import msgspec

from yunhe.control.plugins.model import AllowedFolder, Plugin
from yunhe.control.pools.model import Pool, UsageMinute
from yunhe.kernel.errors import FieldProblem
from yunhe.kernel.ids import BlobId, ProjectId
from yunhe.kernel.money import Prices, Tier
from yunhe.kernel.validation import SECRET
from yunhe.scheduling.orchestration.jobs.model import Job
from yunhe.trading.accounts.model import Key, KeyScope, Member, Project, Role, SecretInfo
from yunhe.trading.applications.model import Submission


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong and what to do about it; ``code`` is stable, programs may branch on it."""

    type: str = ""
    title: str = ""
    status: int = 500
    code: str = "internal"
    detail: str = ""
    remedy: str = ""
    fields: tuple[FieldProblem, ...] = ()
    retryable: bool = False
    request_id: str = ""


class Readiness(msgspec.Struct, frozen=True):
    """Whether this process can serve, and each of its sub-modules in start order."""

    ready: bool
    modules: dict[str, str]


class ModuleRow(msgspec.Struct, frozen=True):
    """One line of the table of modules."""

    module: str
    layer: str
    submodule: str
    folder: str
    built: bool
    needs: tuple[str, ...]
    hosted: bool


class ModuleTable(msgspec.Struct, frozen=True):
    """Every sub-module, built or planned."""

    modules: tuple[ModuleRow, ...]


class Batch(msgspec.Struct, frozen=True):
    """Tasks to accept together, or not at all."""

    submissions: tuple[Submission, ...]


class Jobs(msgspec.Struct, frozen=True):
    """The jobs of a batch, in its order."""

    jobs: tuple[Job, ...]


class Manifests(msgspec.Struct, frozen=True):
    """Objects for another deployer to apply as they are, in this order."""

    manifests: tuple[dict[str, Any], ...]


class Usage(msgspec.Struct, frozen=True):
    """A job's use, minute by minute, over all its attempts."""

    minutes: tuple[UsageMinute, ...]


class Uploaded(msgspec.Struct, frozen=True):
    """An archive that is kept and may be mounted."""

    blob_id: BlobId


class ChunksKept(msgspec.Struct, frozen=True):
    """How many chunks came; those that were there already are among them."""

    chunks: int


class PoolList(msgspec.Struct, frozen=True):
    """Every pool."""

    pools: tuple[Pool, ...]


class PluginList(msgspec.Struct, frozen=True):
    """Every plugin."""

    plugins: tuple[Plugin, ...]


class PluginFolder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plugin for the platform to start: a folder of the server's machine with a ``plugin.toml``."""

    directory: str
    upgrades: str = ""
    """The plugin that this must be the next version of; empty: any, known or new."""


class FolderWish(msgspec.Struct, frozen=True):
    """A folder of the server's machine that plugins may be started from."""

    directory: str


class AllowedFolders(msgspec.Struct, frozen=True):
    """The folders that plugins may be started from."""

    folders: tuple[AllowedFolder, ...]


class PriceTerms(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pool shall charge; medium and low follow from ``high`` unless given."""

    high: Prices
    tiers: dict[Tier, Prices] | None = None


class NewProject(msgspec.Struct, frozen=True):
    """A project to make."""

    id: ProjectId


class Projects(msgspec.Struct, frozen=True):
    """The projects a caller may see."""

    projects: tuple[Project, ...]


class NewRole(msgspec.Struct, frozen=True):
    """The role a user shall have."""

    role: Role


class Members(msgspec.Struct, frozen=True):
    """Who belongs to a project."""

    members: tuple[Member, ...]


class SecretValue(msgspec.Struct, frozen=True):
    """A secret on its way in; it never comes out."""

    value: Annotated[str, SECRET]


class Secrets(msgspec.Struct, frozen=True):
    """A project's secrets, without their values."""

    secrets: tuple[SecretInfo, ...]


class KeyWish(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key to make: for oneself, or as admin for ``user``."""

    name: str
    user: str = ""
    expires_in_s: float | None = None
    scope: KeyScope = KeyScope()
    """What it is good for; never more than the key it is made with."""


class Rotation(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a key changes its text."""

    overlap_s: float = 3600.0
    """How much longer the old text is good."""
    expires_in_s: float | None = None
    """When the key ends, from now; as before when left out."""


class Keys(msgspec.Struct, frozen=True):
    """API keys as they may be shown."""

    keys: tuple[Key, ...]
