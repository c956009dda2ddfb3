"""One mask, or two joined, looked at from every side: its pairs, its tiles, its reach, what libraries make of it."""
