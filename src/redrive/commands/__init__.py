"""Commands: functions with `submit`, which workers run until they are done or dead letters."""
