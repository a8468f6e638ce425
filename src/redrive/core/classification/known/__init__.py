"""Errors of other libraries, by family. Each file has tables of class names."""
