"""The flash page without a screen: its settings, the walk that it shows, and what is measured beside it."""
