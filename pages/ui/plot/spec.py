"""A Plotly figure as the browser takes it, and how it travels in a live frame; no Streamlit."""

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.io.json import to_json_plotly


class Drawn(NamedTuple):
    """Hold one figure with the lines above it and its text alternative."""

    figure: Mapping[str, Any]
    caption: str
    alt: str


def specs(drawn: Mapping[str, Drawn]) -> dict[str, str]:
    """Give figures with their words as ``spec`` gives each."""
    return {part: spec(one.figure, alt=one.alt, caption=one.caption) for part, one in drawn.items()}


def spec(figure: go.Figure | Mapping[str, Any], *, alt: str, caption: str = "") -> str:
    """Give a figure as JSON without colours of its own: the browser adds the page's theme.

    Args:
        figure: The figure, or its data and layout as a mapping, which spares the building of one; what it sets itself
            wins over the theme. A colour "theme-0" is the theme's first, and so on; "theme-text" is its ink.
        alt: The text alternative, with the numbers that matter.
        caption: Plain text above the figure, which follows it; lines are kept.
    """
    content = figure.to_dict() if isinstance(figure, go.Figure) else dict(figure)
    layout = content["layout"] = dict(content.get("layout") or {})
    layout.pop("template", None)
    layout["meta"] = {**(layout.get("meta") or {}), "alt": alt, **({"caption": caption} if caption else {})}
    return str(to_json_plotly(content))


def with_figures(frame: bytes, figures: Mapping[str, str]) -> bytes:
    """Give a frame that carries figures beside its maps, under ``figures`` in its header.

    Args:
        frame: A frame as ``pages.ui.heatmap.frame.pack`` makes it.
        figures: Part name → the figure as ``spec`` gives it.
    """
    (size,) = struct.unpack_from("<I", frame)
    header, payload = frame[4 : 4 + size].rstrip(), frame[4 + size :]
    # Spliced in as text: the figures are JSON already, and reading them again would cost more than making them.
    entries = ",".join(f"{to_json_plotly(name)}:{text}" for name, text in figures.items())
    text = header[:-1] + f',"figures":{{{entries}}}}}'.encode()
    text += b" " * (-(4 + len(text)) % 8)
    return b"".join((struct.pack("<I", len(text)), text, payload))
