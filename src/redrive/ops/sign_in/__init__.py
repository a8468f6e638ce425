"""Sign-in of the console: hashes of passwords and tokens, and sessions that were signed out."""
