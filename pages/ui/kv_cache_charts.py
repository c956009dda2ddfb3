"""The charts of the KV cache page with their words: sizes against context, and which accelerators hold it."""

from collections.abc import Callable

from attnviz import units
from attnviz.figures.kv_cache import Bar, Line, memory_bars, size_curves
from attnviz.kv_cache_view.memory import ENDLESS, Curve, Fit, curves, fits, per_token, taken, weight_bytes
from attnviz.kv_cache_view.view import View
from pages.ui.plot.spec import Drawn
from pages.ui.translate import counted, say


def curve_name(view: View, curve: Curve, language: str) -> str:
    """Name a curve: the model by its name, others by their variant with its heads."""
    heads = view.preset.config.num_attention_heads
    if curve.key in ("own", "ignored", "kept"):
        windows = view.windows if curve.key == "own" else curve.key == "kept"
        name = view.preset.label.say(language)
        if view.preset.sliding_layers:
            name += " · " + say(language, f"kv_cache.curve.{'windows' if windows else 'ignored'}")
        return name
    fields = {"variant": curve.key.upper(), "heads": heads, "kv_heads": curve.kv_heads or 0}
    return say(language, "kv_cache.curve.latent" if curve.kv_heads is None else "kv_cache.curve.grouped", **fields)


def sizes(view: View, language: str) -> Drawn:
    """Give bytes against context."""
    drawn = curves(view)
    lines = [
        Line(curve.key, curve_name(view, curve, language), curve.contexts, curve.sizes, curve.size) for curve in drawn
    ]
    figure = size_curves(lines, view.context, x_title=say(language, "kv_cache.curve.context"))
    fields = {
        "model": view.preset.label.say(language),
        "tokens": counted(language, "token", view.context),
        "batch": units.count(view.batch),
        "size": units.both_bytes(taken(view)),
        "token": units.binary_bytes(per_token(view)),
    }
    each = "; ".join(f"{line.name} {units.binary_bytes(line.size)}" for line in lines)
    return Drawn(
        figure,
        say(language, "kv_cache.curve.caption", **fields),
        say(language, "kv_cache.curve.alt", each=each, **fields),
    )


def accelerators(view: View, language: str) -> Drawn:
    """Give the memory of each accelerator beside what weights and cache need."""
    weights, cache = weight_bytes(view), taken(view)
    found = sorted(fits(view), key=lambda fit: fit.memory)
    bars = [Bar(fit.hardware.short, fit.memory, fit.fits, _said(fit, language)) for fit in found]
    fields = {"weights": units.decimal_bytes(weights), "cache": units.decimal_bytes(cache)}
    names = {f"{part}_name": say(language, f"kv_cache.fit.{part}", **fields) for part in fields}
    need = units.decimal_bytes(weights + cache)
    figure = memory_bars(bars, weights, cache, **names, need_name=need)
    fields |= {"need": need, "gpus": view.gpus, "count": sum(fit.fits for fit in found)}
    each = "; ".join(f"{bar.name}: {bar.words}" for bar in bars)
    return Drawn(
        figure, say(language, "kv_cache.fit.caption", **fields), say(language, "kv_cache.fit.alt", each=each, **fields)
    )


def most(size: int | None, write: Callable[[int], str]) -> str:
    """Write how much fits at most."""
    return "–" if size is None else "∞" if size == ENDLESS else write(size)


def _said(fit: Fit, language: str) -> str:
    """Say whether it fits, and the most that does."""
    if fit.context is None:
        return say(language, "kv_cache.fit.weights_alone")
    fields = {"context": most(fit.context, units.short_count), "batch": most(fit.batch or 0, units.short_count)}
    return say(language, "kv_cache.fit.yes" if fit.fits else "kv_cache.fit.no", **fields)
