"""What a published model's numbers hold: its windows, its other layers, its context, its note, and its source."""

from attnviz import units
from attnviz.presets import Preset
from pages.ui import layout
from pages.ui.translate import say


def told(preset: Preset, language: str, context: int, *, windows: bool = True) -> list[str]:
    """Say what its windows and other layers change, and what else a reader should know.

    Args:
        preset: The model.
        language: Language of the words.
        context: Tokens that the page shows it at.
        windows: Whether its windows are kept.
    """
    said = []
    if preset.sliding_layers:
        fields = {"layers": preset.sliding_layers, "window": units.count(preset.window or 0)}
        said.append(say(language, f"published.{'windows' if windows else 'ignored'}", **fields))
    if preset.linear_layers:
        said.append(say(language, "published.linear", layers=preset.linear_layers))
    if context > preset.max_context:
        said.append(say(language, "published.beyond", most=units.count(preset.max_context)))
    if preset.note is not None:
        said.append(layout.escape(preset.note.say(language)))
    return said


def source(preset: Preset, language: str) -> str:
    """Give the link to where its sizes were read."""
    return f"[{say(language, 'published.source')}]({preset.source})"
