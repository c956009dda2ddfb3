"""The pictures that follow a slider, by their key in the address."""

from types import MappingProxyType

from pages.ui import (
    attention_picture,
    attention_row,
    benchmark_picture,
    cost_picture,
    flash_picture,
    home_picture,
    kv_cache_picture,
    linear_picture,
    masks_picture,
    saturation_picture,
    variants_picture,
    why_attention_picture,
)
from pages.ui.live import Figure, make_routes
from pages.ui.plot.asset import asset_routes

FIGURES = MappingProxyType(
    {
        home_picture.FIGURE: Figure(home_picture.frame),
        benchmark_picture.FIGURE: Figure(benchmark_picture.frame),
        cost_picture.FIGURE: Figure(cost_picture.frame),
        attention_picture.FIGURE: Figure(attention_row.frame, attention_picture.cell),
        saturation_picture.FIGURE: Figure(saturation_picture.frame),
        masks_picture.FIGURE: Figure(masks_picture.frame, masks_picture.cell),
        variants_picture.FIGURE: Figure(variants_picture.frame, variants_picture.cell),
        kv_cache_picture.FIGURE: Figure(kv_cache_picture.frame, kv_cache_picture.cell),
        flash_picture.FIGURE: Figure(flash_picture.frame, flash_picture.cell),
        why_attention_picture.FIGURE: Figure(why_attention_picture.frame),
        linear_picture.FIGURE: Figure(linear_picture.frame, linear_picture.cell),
    }
)
routes = (*make_routes(FIGURES), *asset_routes())
