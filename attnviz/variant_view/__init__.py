"""The variants page: its settings, the layers it draws, what they take, and whether they fit."""
