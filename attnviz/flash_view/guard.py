"""What a view of the flash page takes, predicted before anything is allocated, and the refusal of what is too much."""

from attnviz import device, units
from attnviz.flash_view.view import View
from attnviz.guard import SHARE
from attnviz.text import Refusal, Text

_TOO_MUCH = Text(
    "Refused before allocating anything: {length} × {key_length} tokens with d_k {d_k} in tiles of {rows} × {cols} "
    "would take {need}; the limit is {most} ({share} % of the free memory). Smaller tiles or a shorter length take "
    "less.",
    "在分配内存之前已拒绝：{length} × {key_length} 个 token、d_k = {d_k}、块为 {rows} × {cols} 约需 {need}；"
    "上限为 {most}（空闲内存的 {share} %）。减小块或缩短长度可减少占用。",
)


def predict(view: View) -> int:
    """Predict the bytes that the view's main picture holds at its peak.

    Query, key and value in float32 and, for the exact row, in float64; a block of queries against all keys by eager in
    float64 with scores, weights and what lies between; a tile of the trace.
    """
    inputs = (view.length + 2 * view.key_length) * view.d_k
    rows, cols = min(view.tile_rows, view.length), min(view.tile_cols, view.key_length)
    return 12 * inputs + 8 * 5 * rows * view.key_length + 4 * rows * (2 * cols + 3 * view.d_k)


def check(view: View, free_bytes: int | None = None) -> int:
    """Give the prediction, or refuse the view.

    Args:
        view: The view.
        free_bytes: Free memory; looked up when None.

    Raises:
        Refusal: If it would take more than ``SHARE`` of the free memory.
    """
    most = int((device.free_bytes("cpu") if free_bytes is None else free_bytes) * SHARE)
    need = predict(view)
    if need <= most:
        return need
    raise Refusal(
        _TOO_MUCH.fill(
            length=units.count(view.length),
            key_length=units.count(view.key_length),
            d_k=view.d_k,
            rows=view.tile_rows,
            cols=view.tile_cols,
            need=units.binary_bytes(need),
            most=units.binary_bytes(most),
            share=f"{SHARE:.0%}".rstrip("%"),
        )
    )
