"""Tests that drive the app in a real Chromium."""
