"""What the KV cache page shows: its settings, the decoding of a sentence, memory, and what goes wrong."""
