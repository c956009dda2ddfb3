"""Words in a Plotly figure."""


def literal(text: str) -> str:
    """Make a token literal in Plotly, which reads a few HTML tags, entities and $…$ as formulas."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")
    return safe.replace("\t", "⇥").replace("\n", "↵")
