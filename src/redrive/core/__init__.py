"""Values and decisions: pure, without a clock, a socket, a file or a random source of their own."""
