"""What a view works out number by number: one cell of the map, and the shape of every tensor."""

from attnviz.arithmetic.cell import Cell, Change, Product, cell
from attnviz.arithmetic.ledger import Entry, ledger

__all__ = ["Cell", "Change", "Entry", "Product", "cell", "ledger"]
