"""What the variants have in common that keep a state of fixed size instead of tokens.

``features`` holds the maps that queries and keys go through, ``reading`` says which part of the sequence each query
reads, ``pieces`` gives a call's tensors piece by piece, ``decay`` forgets, ``layer`` is the layer around a core.
"""
