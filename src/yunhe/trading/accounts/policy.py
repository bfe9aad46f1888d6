"""Who may do what: a table, and the one function that reads it."""

from yunhe.kernel.ids import ProjectId
from yunhe.trading.accounts.model import EVERY_PROJECT, Action, Principal, Role

RANK = {Role.VIEWER: 0, Role.MEMBER: 1, Role.OPERATOR: 2, Role.ADMIN: 3}

NEEDS: dict[Action, Role] = {
    Action.SEE: Role.VIEWER,
    Action.RUN: Role.MEMBER,
    Action.SECRETS: Role.MEMBER,
    Action.POOLS: Role.OPERATOR,
    Action.PRICES: Role.OPERATOR,
    Action.METRICS: Role.OPERATOR,
    Action.KEYS: Role.VIEWER,
    Action.MEMBERS: Role.ADMIN,
    Action.AUDIT: Role.ADMIN,
}


def role_in(who: Principal, project_id: ProjectId) -> Role | None:
    """Return the strongest role *who* has there; a membership in every project counts everywhere."""
    roles = [m.role for m in who.memberships if m.project_id in (project_id, EVERY_PROJECT)]
    return max(roles, key=RANK.__getitem__, default=None)


def may(who: Principal, action: Action, project_id: ProjectId) -> bool:
    """Return whether *who* may do *action* in the project."""
    if who.scope.actions and action not in who.scope.actions:
        return False
    role = role_in(who, project_id)
    return role is not None and RANK[role] >= RANK[NEEDS[action]]
