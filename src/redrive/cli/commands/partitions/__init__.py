"""Commands for partitions of datasets: `redrive state`, `redrive backfill` and `redrive plan`."""
