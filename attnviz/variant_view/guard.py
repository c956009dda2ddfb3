"""What the variants page will take, predicted before any weight is drawn, and the refusal of what is too much."""

from dataclasses import replace

from attnviz import device, units
from attnviz.cost import nearest_size
from attnviz.text import Refusal, Text
from attnviz.variant_view import layers
from attnviz.variant_view.view import View
from attnviz.variants import VARIANTS
from attnviz.view_run import WIDTH

# Several people may ask at once, and the browser's pictures need memory too.
SHARE = 0.25
_SIZE = 4  # everything is drawn in float32

_TOO_MUCH = Text(
    "Refused before allocating anything: {heads} heads with d_k {d_k} would take {need}; the limit is {most} "
    "({share} % of the free memory). {hint}",
    "在分配内存之前已拒绝：{heads} 个头、d_k = {d_k} 约需 {need}；此处上限为 {most}（空闲内存的 {share} %）。{hint}",
)
_NEAREST = Text("The largest d_k that fits is {size}.", "能放下的最大 d_k 是 {size}。")
_NONE = Text("No d_k fits; lower the heads.", "任何 d_k 都放不下，请减少头数。")


def predict(view: View) -> int:
    """Predict the most bytes held at once while the view's layers are drawn and attend."""
    making = _grouped(view) if view.variant != "mla" else max(_grouped(view), _latent(view))
    return _SIZE * (making + _attending(view))


def _grouped(view: View) -> int:
    """Count the entries of an MHA layer while it is drawn and its heads are merged: four matrices, and two more.

    A matrix is held as its heads, put together, and scaled, one after the other; a random head likewise.
    """
    return 6 * WIDTH * view.heads * view.d_k


def _latent(view: View) -> int:
    """Count the entries of an MLA layer while it is drawn, and of the copies of what is cut from it."""
    sizes = layers.latent_sizes(view.heads, view.d_k)
    shapes = VARIANTS["mla"].matrices(sizes)
    largest = max(rows * cols for rows, cols in shapes.values())
    cut = sum(shapes[name][0] * shapes[name][1] for name in ("query", "key", "value"))
    return VARIANTS["mla"].parameters(sizes) + max(2 * largest, cut)


def _attending(view: View) -> int:
    """Count the entries of query, key, value, their merged heads, and every head's scores, weights and masks."""
    tokens = len(view.tokens)
    rows = view.heads * tokens
    tile = min(2**20, rows * tokens * view.d_k) if view.variant == "additive" else 0
    return 2 * (6 * rows * (view.d_k + view.rope) + 4 * rows * tokens) + tile


def check(view: View, free_bytes: int | None = None) -> None:
    """Refuse a view that would take more than ``SHARE`` of the free memory.

    Args:
        view: The view.
        free_bytes: Free memory; looked up when None.

    Raises:
        Refusal: The sentence gives both numbers and the largest d_k that fits.
    """
    most = int((device.free_bytes("cpu") if free_bytes is None else free_bytes) * SHARE)
    need = predict(view)
    if need <= most:
        return
    size = nearest_size(lambda d_k: predict(replace(view, d_k=d_k)) <= most, 1, view.d_k)
    raise Refusal(
        _TOO_MUCH.fill(
            heads=view.heads, d_k=view.d_k, need=units.binary_bytes(need), most=units.binary_bytes(most),
            share=f"{SHARE:.0%}".rstrip("%"), hint=_NONE if size is None else _NEAREST.fill(size=size),
        )
    )  # fmt: skip
