"""S3, Azure and Google Cloud Storage through obstore, a client in Rust."""

from __future__ import annotations

from .services import AzureObstore, Gcs, S3Obstore

__all__ = ["AzureObstore", "Gcs", "S3Obstore"]
