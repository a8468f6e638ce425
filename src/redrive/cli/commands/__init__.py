"""Every command of `redrive`. The table in `redrive.cli.root` names the module of each."""
