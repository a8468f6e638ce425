"""The version of this package. Metadata would not do: a zip or a vendored copy has none."""

VERSION = "0.1.0"
