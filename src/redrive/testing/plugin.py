"""The pytest plugin, loaded by its entry point in every pytest run: keep its imports few."""
