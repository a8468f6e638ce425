"""For your own tests: time that you move, faults that you order, a worker that you step."""
