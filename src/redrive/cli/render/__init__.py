"""Tables, timelines and progress bars."""
