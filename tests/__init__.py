"""Tests of attnviz and its app; ``run.py`` is the one test command."""
