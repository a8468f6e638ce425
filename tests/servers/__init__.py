"""Real servers for tests: started when a test first asks, one of each for a run, gone when it ends.

A server comes from the address in its variable, else from a wheel, else from the programs on PATH. Where there is
none, the test fails under CI and is skipped elsewhere, and the summary says so in capitals.
"""
