"""Real servers for tests: started at first use, one of each for a run, and stopped at its end.

A server comes from the address in its variable, else from a wheel, else from the programs on PATH. Without a server, the test
fails under CI and is skipped elsewhere, and the summary reports it in capitals.
"""
