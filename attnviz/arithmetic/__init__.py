"""What a view works out number by number: one cell of the map, and the shape of every tensor."""

from attnviz.arithmetic.records import Cell, Change, Product
from attnviz.arithmetic.shapes import Entry, ledger
from attnviz.arithmetic.steps import cell

__all__ = ["Cell", "Change", "Entry", "Product", "cell", "ledger"]
