"""HTTP clients and the send buffer, compared with bare libraries."""
