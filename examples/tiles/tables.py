"""The table `tiles`, and the states that a tile can be in."""

from __future__ import annotations

import enum

from sqlalchemy import CheckConstraint, LargeBinary, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class VotingStatus(enum.StrEnum):
    """State of a tile. Only an operator moves a tile out of UPLOAD_GIVEUP."""

    PENDING = "pending"
    TRUSTED = "trusted"
    REJECTED = "rejected"
    UPLOADED = "uploaded"
    UPLOAD_GIVEUP = "upload_giveup"


class Base(DeclarativeBase): ...


class Tile(Base):
    """A tile. Only Redrive writes the columns `upload_*`."""

    __tablename__ = "tiles"
    __table_args__ = (
        CheckConstraint(
            "voting_status IN ('pending', 'trusted', 'rejected', 'uploaded', 'upload_giveup')", name="ck_tiles_voting_status"
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    flight_id: Mapped[str] = mapped_column(Text)
    blob: Mapped[bytes] = mapped_column(LargeBinary)
    sha256: Mapped[str] = mapped_column(Text)
    voting_status: Mapped[str] = mapped_column(Text, server_default=text("'pending'"))
    upload_attempts: Mapped[int] = mapped_column(server_default=text("0"))
    upload_uncharged: Mapped[int] = mapped_column(server_default=text("0"))
    upload_reason: Mapped[str | None] = mapped_column(Text)
