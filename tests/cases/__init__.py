"""Situations from public bug reports of other tools, one module for each section, each with what right looks like here.

A test is named after its case. What a page sends is read from its frames and its text; what only a browser shows, such
as hover, themes and clicks, is tested in ``tests/browser``.
"""
