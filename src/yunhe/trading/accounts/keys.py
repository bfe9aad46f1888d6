"""What a key may do: its scope, how it comes from the key it was made with, and how many there may be."""

import secrets as randomness

from yunhe.kernel.errors import ConflictError, FieldProblem, ForbiddenError, InvalidInputError
from yunhe.kernel.ids import new_id
from yunhe.storage.database import Connection
from yunhe.trading.accounts import store
from yunhe.trading.accounts.model import (
    EVERY_PROJECT,
    Action,
    Key,
    KeyScope,
    Membership,
    NewKey,
    Principal,
    Role,
)
from yunhe.trading.accounts.policy import RANK

KEY_PREFIX = "yk_"
MOST_LIVE = 200
"""Keys of one user that open something."""
MOST_AN_HOUR = 100
"""Keys made for one user within an hour, ended or not."""
DEEPEST = 5
"""How many keys may come from each other, one after the other."""
LONGEST_OVERLAP_S = 7 * 86400.0


def narrowed(memberships: tuple[Membership, ...], scope: KeyScope) -> tuple[Membership, ...]:
    """Return what is left of a user's memberships for who comes with a key of this scope."""
    if scope.plugin:
        return ()
    kept = [
        m for m in memberships if not scope.project_id or m.project_id in (scope.project_id, EVERY_PROJECT)
    ]
    return tuple(
        Membership(scope.project_id or m.project_id, _lesser(m.role, scope.role) or m.role) for m in kept
    )


def child_scope(parent: KeyScope, wish: KeyScope) -> KeyScope:
    """Return the scope of a key made with one of scope *parent*: never wider than that."""
    problems: list[FieldProblem] = []
    if parent.project_id and wish.project_id not in ("", parent.project_id):
        problems.append(FieldProblem("scope.project_id", f"is not {parent.project_id}", wish.project_id))
    if parent.actions and not set(wish.actions) <= set(parent.actions):
        beyond = sorted(set(wish.actions) - set(parent.actions))
        problems.append(FieldProblem("scope.actions", "is beyond the key in use", ", ".join(beyond)))
    if wish.plugin and (wish.project_id or wish.role or wish.actions):
        problems.append(
            FieldProblem("scope.plugin", "stands alone: such a key does nothing else", wish.plugin)
        )
    if problems:
        raise InvalidInputError(
            "The key would reach further than it may.",
            remedy="Leave these out, or make it with a key of wider scope.",
            fields=tuple(problems),
        )
    if wish.plugin:
        return wish
    return KeyScope(
        project_id=wish.project_id or parent.project_id,
        role=_lesser(parent.role, wish.role),
        actions=wish.actions or parent.actions,
    )


def _lesser(one: Role | None, other: Role | None) -> Role | None:
    return min((role for role in (one, other) if role is not None), key=RANK.__getitem__, default=None)


def require_may_mint(who: Principal) -> None:
    """Raise unless the key in use may make and end keys."""
    if who.scope.plugin or (who.scope.actions and Action.KEYS not in who.scope.actions):
        raise ForbiddenError(
            "This key makes and ends no keys: its scope leaves that out.",
            remedy="Use one whose actions include keys, or one without a scope.",
        )


def child_end(who: Principal, expires_in_s: float | None, now: float) -> float | None:
    """Return when a key made now by *who* ends: as wished, and never after the key it is made with."""
    if expires_in_s is not None and expires_in_s <= 0:
        raise InvalidInputError(
            "The key would be expired from the start.",
            remedy="Give a positive duration, such as 30d.",
            fields=(FieldProblem("expires_in_s", "must be positive", str(expires_in_s)),),
        )
    if expires_in_s is None:
        return who.key_expires_at
    if who.key_expires_at is not None and now + expires_in_s > who.key_expires_at:
        left_s = max(0.0, who.key_expires_at - now)
        raise InvalidInputError(
            f"The key would outlive the one it is made with, which ends in {left_s:.0f} s.",
            remedy="Ask for less, or make it with a key that lasts longer.",
            fields=(FieldProblem("expires_in_s", f"must be at most {left_s:.0f}", str(expires_in_s)),),
        )
    return now + expires_in_s


def require_room(connection: Connection, key: Key, now: float) -> None:
    """Raise when a user has too many keys, or has made too many lately, or they come from each other too deeply."""
    live, made = store.count_keys(connection, key.user_id, now)
    if live >= MOST_LIVE or made >= MOST_AN_HOUR:
        why = f"{live} that are valid" if live >= MOST_LIVE else f"{made} made within the hour"
        raise ConflictError(
            f"There are too many keys of this user: {why}.",
            remedy="Revoke those that nobody uses (yunhe token ls), or rotate one instead of making another.",
        )
    if len(store.ancestors(connection, key.parent_id)) >= DEEPEST:
        raise ConflictError(
            f"The key in use is the last of {DEEPEST} that were each made with the one before.",
            remedy="Make this one with an earlier key.",
        )


def insert_new(connection: Connection, key: Key) -> NewKey:
    """Keep a key under a new ID and return it with its text."""
    text = new_text()
    store.insert_key(connection, key, text)
    return NewKey(key=key, text=text)


def new_text() -> str:
    """Return the text of a key nobody has seen."""
    return KEY_PREFIX + randomness.token_urlsafe(32)


def new_key_id(now: float) -> str:
    """Return an ID for a new key."""
    return new_id("key", now)


def require_rotates(connection: Connection, who: Principal, key_id: str) -> None:
    """Raise unless *who* comes with the key itself or with one that it was made with.

    Whoever rotates a key gets its text: any other key, even of the same user, would come to more than it had.
    """
    line = [key_id, *(row.id for row in store.ancestors(connection, store.parent_of(connection, key_id)))]
    if who.key_id not in line:
        raise ForbiddenError(
            "A key is rotated with itself or with a key that it was made with.",
            remedy="Use that key (YUNHE_KEY), or make a new one and revoke this.",
        )


def check_overlap(overlap_s: float) -> None:
    """Raise unless the old text of a rotated key may stay valid for so long."""
    if not 0 <= overlap_s <= LONGEST_OVERLAP_S:
        raise InvalidInputError(
            "The old text cannot stay valid for so long.",
            remedy="Give between 0 and 7 days.",
            fields=(FieldProblem("overlap_s", "is not between 0 and 604800", str(overlap_s)),),
        )
