"""A view's mask as code: for torch's fused call, its module, FlexAttention, and as a term that is added."""

import textwrap
from collections.abc import Callable, Mapping
from types import MappingProxyType

from attnviz.mask_view.view import View
from attnviz.mask_view.why import code_of
from attnviz.text import Refusal, Text

_FORM = Text("form must be one of {options}, got {value!r}.", "form 应为以下之一：{options}，收到的是 {value!r}。")
_JOINS = MappingProxyType({"and": "first & second", "or": "first | second", "and_not": "first & ~second"})

# Short lines: beside the gallery there is room for about sixty characters.
_TENSORS = "q = torch.randn(1, 1, q_len, 64)\nk, v = torch.randn(2, 1, 1, kv_len, 64)\n"


def export(view: View, form: str | None = None) -> str:
    """Give a script that makes the mask of the sequence and head drawn and uses it; it needs torch alone.

    Args:
        view: The view.
        form: ``sdpa``, ``mha``, ``flex`` or ``additive``; None takes the view's own.

    Returns:
        The script; it leaves ``allowed``, bool ``[q_len, kv_len]`` with True = may attend (``flex`` leaves ``rule``
        instead), and ``output``.

    Raises:
        Refusal: If there is no such form.
    """
    forms: Mapping[str, Callable[[View], str]] = {"sdpa": _sdpa, "mha": _mha, "flex": _flex, "additive": _additive}
    asked = view.form if form is None else form
    if asked not in forms:
        raise Refusal(_FORM.fill(options=", ".join(forms), value=asked))
    return forms[asked](view)


def rules(view: View) -> tuple[list[str], str]:
    """Give the lines that come before, and the expression that says who may attend."""
    lines, made = _one(view, view.mask, dict(view.mask_settings))
    if view.join != "none":
        further, second = _one(view, view.other, dict(view.other_settings))
        lines = [*lines, f"first = {made}", *further, f"second = {second}"]
        made = _JOINS[view.join]
    return lines, f"~({made})" if view.invert else made


def _one(view: View, name: str, settings: dict) -> tuple[list[str], str]:
    *lines, made = code_of(view, name, settings).split("\n")
    return lines, made


def _shift(view: View) -> str:
    """Give what is added to the index of a query to have its position among the keys."""
    shift = view.look.offset
    return f" + {shift}" if shift > 0 else f" - {-shift}" if shift else ""


def _allowed(view: View) -> str:
    """Give the lines that make the whole grid."""
    lines, made = rules(view)
    index = f"torch.arange(q_len)[:, None]{_shift(view)}"
    return "\n".join(
        [
            "import torch\n",
            f"q_len, kv_len = {view.length}, {view.key_length}",
            f"q_idx = {index}",
            "kv_idx = torch.arange(kv_len)[None]",
            *([f"head = torch.tensor({view.head})"] if view.build_mask().per_head else []),
            *lines,
            f"allowed = ({made}).expand(q_len, kv_len)  # True = may attend",
            "",
        ]
    )


def _sdpa(view: View) -> str:
    note = ""
    if view.build_mask().is_causal and view.look.offset == 0:
        note = "# The same without a matrix: is_causal=True in place of attn_mask.\n"
    return (
        f"{_allowed(view)}\n{_TENSORS}{note}"
        "output = torch.nn.functional.scaled_dot_product_attention(\n    q, k, v, attn_mask=allowed\n)\n"
    )


def _mha(view: View) -> str:
    return (
        f"{_allowed(view)}\n"
        "hidden = ~allowed  # here True = hide; a row that is all True gives NaN\n"
        "attention = torch.nn.MultiheadAttention(64, 1, batch_first=True)\n"
        "x, context = torch.randn(1, q_len, 64), torch.randn(1, kv_len, 64)\n"
        "output, weights = attention(x, context, context, attn_mask=hidden)\n"
    )


def _additive(view: View) -> str:
    return (
        f"{_allowed(view)}\n{_TENSORS}"
        'bias = torch.zeros(q_len, kv_len).masked_fill(~allowed, float("-inf"))\n'
        "weights = torch.softmax(q @ k.mT * 64**-0.5 + bias, dim=-1)\n"
        "weights = weights.masked_fill(~allowed, 0.0)  # a row without a key: 0 instead of NaN\n"
        "output = weights @ v\n"
    )


def _flex(view: View) -> str:
    lines, made = rules(view)
    shift = _shift(view)
    inside = [
        *([f"q_idx = q_idx{shift}"] if shift else []),
        *([f"head = torch.tensor({view.head})"] if view.build_mask().per_head else []),
        *lines,
        f"return {made}",
    ]
    return (
        "import torch\n"
        "from torch.nn.attention.flex_attention import create_block_mask, flex_attention\n\n"
        'device = "cuda" if torch.cuda.is_available() else "cpu"\n'
        "torch.set_default_device(device)\n"
        f"q_len, kv_len = {view.length}, {view.key_length}\n\n\n"
        "def rule(b, h, q_idx, kv_idx):  # True = may attend\n"
        f"{textwrap.indent(chr(10).join(inside), '    ')}\n\n\n"
        "block_mask = create_block_mask(rule, None, None, q_len, kv_len, device=device)\n"
        f"{_TENSORS}"
        "output = torch.compile(flex_attention)(q, k, v, block_mask=block_mask)\n"
    )
