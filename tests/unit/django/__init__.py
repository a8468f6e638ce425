"""Tests of redrive.django. They need Django 6, and so Python 3.12: `make test` runs them on another interpreter."""
