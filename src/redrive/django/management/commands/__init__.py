"""Commands of `manage.py`, one in each module."""
