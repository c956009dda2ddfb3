"""See and measure attention: the computations behind the app, usable without it."""

__version__ = "0.1.0"
