"""Raw data: the files of one run in a store, and their manifest."""
