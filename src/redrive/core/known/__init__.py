"""What is known of the errors of other people's libraries: one file for each family, each a table of names."""
