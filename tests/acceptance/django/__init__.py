"""Django projects as a whole."""
