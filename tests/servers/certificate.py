"""A key and a self-signed certificate for 127.0.0.1 and localhost."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta, timezone
from pathlib import Path


def self_signed(folder: Path, /) -> Path:
    """Write both into one file, and return its path."""
    from cryptography import x509  # imported here, because unit tests run without it
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now = datetime.now(timezone.utc)
    unsigned = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    unsigned = unsigned.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    unsigned = unsigned.add_extension(x509.SubjectAlternativeName(here), critical=False)
    signed = unsigned.sign(key, hashes.SHA256())
    own = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "certificate.pem"
    file.write_bytes(own + signed.public_bytes(serialization.Encoding.PEM))
    return file
