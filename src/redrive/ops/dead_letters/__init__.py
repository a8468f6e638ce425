"""Dead letters: find, edit, export and reveal them."""
