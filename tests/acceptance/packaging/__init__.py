"""The package as users get it: wheel, source distribution, zip and vendored copy."""
