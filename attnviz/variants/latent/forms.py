"""The two forms of latent attention: make keys and values out of latents, or move queries and results instead."""

from dataclasses import replace
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from attnviz.backends.base import CoreOutput, LateCoreOutput
from attnviz.variants.base import Tensors
from attnviz.variants.latent.sizes import LatentConfig

# As DeepSeek-V3 has it, https://huggingface.co/deepseek-ai/DeepSeek-V3/blob/main/config.json
_NORM_EPSILON = 1e-6


def expand(config: LatentConfig, weights: Tensors, kept: Float[Tensor, "batch tokens kept"]) -> tuple[Tensor, Tensor]:
    """Make the key and value of every head out of what is kept, ``[batch, heads, tokens, width]``."""
    heads = config.num_attention_heads
    latent, rope = kept.split((config.kv_lora_rank, config.qk_rope_head_dim), dim=-1)
    plain = (latent @ weights["key"]).unflatten(2, (heads, config.qk_nope_head_dim)).transpose(1, 2)
    value = (latent @ weights["value"]).unflatten(2, (heads, config.v_head_dim)).transpose(1, 2)
    return torch.cat((plain, rope[:, None].expand(-1, heads, -1, -1)), dim=-1), value


def pair_flops(config: LatentConfig, *, absorbed: bool) -> int:
    """Count the FLOPs of one query and one key in one head."""
    return 2 * (2 * config.kept if absorbed else config.head_dim + config.v_head_dim)


def norm(tokens: Tensor, factors: Tensor) -> Tensor:
    """Bring each token's entries to a mean square of one, in float32 at least."""
    wide = tokens.to(torch.promote_types(tokens.dtype, torch.float32))
    return F.rms_norm(wide, tokens.shape[-1:], eps=_NORM_EPSILON).to(tokens.dtype) * factors


def absorb(
    config: LatentConfig, weights: Tensors, query: Float[Tensor, "batch heads q_len head_dim"]
) -> Float[Tensor, "batch heads q_len kept"]:
    """Move each head's query through its key matrix, so that it can be compared with what is kept."""
    plain, turned = query.split((config.qk_nope_head_dim, config.qk_rope_head_dim), dim=-1)
    matrix = weights["key"].unflatten(1, (config.num_attention_heads, config.qk_nope_head_dim))
    return torch.cat((torch.einsum("bhqn,rhn->bhqr", plain, matrix), turned), dim=-1)


def release(config: LatentConfig, weights: Tensors, core: CoreOutput) -> CoreOutput:
    """Give a core's answer with each head's values in place of its weighted sum of latents."""
    output, kernel = _values(config, weights, core.output), f"absorbed · {core.kernel}"
    if isinstance(core, LateCoreOutput):
        # Its row statistics are worked out when they are first asked for; asking here would cost a pass over the cache.
        return LateCoreOutput(output, kernel, lambda: cast(Tensor, core.logsumexp))
    return replace(core, output=output, kernel=kernel)


def _values(
    config: LatentConfig, weights: Tensors, mixed: Float[Tensor, "batch heads q_len kept"]
) -> Float[Tensor, "batch heads q_len v_head_dim"]:
    """Make each head's value of its weighted sum of latents; the rotary keys' sum is no value and falls away."""
    matrix = weights["value"].unflatten(1, (config.num_attention_heads, config.v_head_dim))
    return torch.einsum("bhqr,rhv->bhqv", mixed[..., : config.kv_lora_rank], matrix)
