"""A background job that uploads a flight. It survives hours without a network and reports given-up tiles."""

from __future__ import annotations

from redrive import Again, App, Command, Stop

from .uploader import FlightStateNotOnGroundError, SatelliteProviderError, TileUploader, UploadRequest

OFFLINE_WAIT = 300
"""Seconds until the next attempt, if the provider cannot be reached or the aircraft is in the air."""
PENDING_WAIT = 60
"""Seconds until the next attempt, if tiles are pending."""


def build_upload_job(app: App, uploader: TileUploader) -> Command[[str], None]:
    """Register the job `tiles.upload` and return it. One such job runs at a time."""

    @app.command("tiles.upload", concurrency=1)
    def upload(flight_id: str) -> None:
        try:
            report = uploader.upload_pending_tiles(UploadRequest(flight_id))
        except (SatelliteProviderError, FlightStateNotOnGroundError) as error:
            raise Again(str(error), after=OFFLINE_WAIT, free=True) from error
        if report.next_retry_at is not None:
            raise Again(f"pending tiles: {report.count('pending')}", after=PENDING_WAIT, free=True)
        given_up = report.count("giveup")
        if given_up:
            raise Stop(f"flight {flight_id}: given-up tiles: {given_up}; reopen them, then replay this job")

    return upload
