"""Commands about partitions of datasets."""
