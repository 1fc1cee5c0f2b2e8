"""one open invitation link per person: of several, the newest stays

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# A link is spent where a newer one was made for the same person (one that was used too), where the account is closed,
# and, of the set-up links, where an admin can sign in.
SPEND = """
update invitation set used_at = :now where used_at is null and (
    exists (
        select 1 from invitation as other
        where (other.person_id = invitation.person_id or (other.person_id is null and invitation.person_id is null))
        and (other.created_at > invitation.created_at
             or (other.created_at = invitation.created_at and other.token_hash > invitation.token_hash))
    )
    or person_id in (select id from person where disabled_at is not null)
    or (person_id is null and exists (
        select 1 from person where role = 'admin' and disabled_at is null and password_hash is not null
    ))
)
"""


def upgrade() -> None:
    op.get_bind().execute(sa.text(SPEND), {"now": time.time()})
    is_open = sa.text("used_at is null")
    op.create_index(
        "uq_invitation_person_id_open",
        "invitation",
        ["person_id"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
