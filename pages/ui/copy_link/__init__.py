"""A button that copies the address of exactly this view."""

from collections.abc import Mapping
from pathlib import Path

from streamlit.components.v2 import component

_HTML = '<button type="button"></button><span role="status"></span>'
_CSS = """
:host, div { font-family: var(--st-font); }
button {
  font: inherit; font-size: 0.875rem; min-width: 6.5rem; cursor: pointer;
  padding: 0.35rem 0.75rem; min-height: 2.5rem; white-space: nowrap;
  color: var(--st-text-color); background: transparent;
  border: 1px solid var(--st-border-color); border-radius: var(--st-button-radius, 0.5rem);
}
button:hover { border-color: var(--st-primary-color); color: var(--st-primary-color); }
button:focus-visible { outline: 2px solid var(--st-primary-color); outline-offset: 2px; }
span { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
"""
_component = component(
    "attnviz_copy_link", html=_HTML, css=_CSS, js=(Path(__file__).parent / "copy_link.js").read_text(encoding="utf-8")
)


def copy_link(settings: Mapping[str, str], *, label: str, copied: str, failed: str, key: str) -> None:
    """Draw the button.

    Args:
        settings: Everything the link carries, the language included.
        label: Text of the button.
        copied: Text shown for a moment once the address is on the clipboard.
        failed: Text shown when the browser forbids it.
        key: Key of the element.
    """
    _component(
        data={"settings": dict(settings), "label": label, "copied": copied, "failed": failed}, key=key, width="content"
    )
