"""What a layer of latent attention takes, step by step as ``Latent.attend`` takes it; not of a gradient."""

from attnviz.backends.base import Pass, Play
from attnviz.ledger import Ledger
from attnviz.variants.latent.sizes import LatentConfig
from attnviz.variants.work import HeadShape, Work


def layer_peak_bytes(config: LatentConfig, work: Work, core: Play, *, absorbed: bool) -> int:
    """Predict the peak of a layer's forward pass.

    Counted is all that torch allocates between tokens and result: what is kept of the tokens, the keys and values made
    of it or the queries moved instead, the core, the projections. Not counted are tokens, weights, a cache, the mask.
    """
    ledger = Ledger()
    _compress(ledger, config, work)
    _mix(ledger, config, work, core, absorbed=absorbed)
    shape = work.shape(core_heads(config, absorbed=False))
    merged = work.batch * work.q_len * shape.heads * config.v_head_dim * work.itemsize
    if ledger.holds("output") and shape.heads > 1 and (work.q_len > 1 or (absorbed and work.batch > 1)):
        ledger.take(merged=merged)
    ledger.take(answer=work.batch * work.q_len * config.hidden_size * work.itemsize)
    return ledger.most


def core_peak_bytes(config: LatentConfig, work: Work, core: Play, *, absorbed: bool) -> int:
    """Predict the peak of a core's forward pass: from a query and what is kept of the tokens to each head's output."""
    ledger = Ledger()
    _mix(ledger, config, work, core, absorbed=absorbed)
    return ledger.most


def _mix(ledger: Ledger, config: LatentConfig, work: Work, core: Play, *, absorbed: bool) -> None:
    form = _absorbed if absorbed else _expanded
    form(ledger, config, work, core)


def core_heads(config: LatentConfig, *, absorbed: bool) -> HeadShape:
    """Give the shape of the core; absorbed, what is kept is the one key and the one value of all heads."""
    heads = config.num_attention_heads
    if absorbed:
        return HeadShape(heads, 1, config.kept, config.kept)
    return HeadShape(heads, heads, config.head_dim, config.v_head_dim)


def _compress(ledger: Ledger, config: LatentConfig, work: Work) -> None:
    """Take the query, and what is kept of the tokens; behind a cache that is made and not kept here."""
    token = work.batch * work.q_len * work.itemsize
    latent, rope = token * config.kv_lora_rank, token * config.qk_rope_head_dim
    cached = work.q_len < work.kv_len
    if cached:
        ledger.touch(max(latent, rope))
    if config.q_lora_rank:
        down = token * config.q_lora_rank
        ledger.take(down=down)
        ledger.touch(2 * down)
    ledger.take(query=token * config.num_attention_heads * config.head_dim)
    ledger.drop("down")
    if not cached:
        # A product, brought to one length, and that times its factors.
        ledger.touch(3 * latent)
        ledger.take(latent=latent, rope=rope, kept=latent + rope)
        ledger.drop("latent", "rope")


def _expanded(ledger: Ledger, config: LatentConfig, work: Work, core: Play) -> None:
    """Take every head's keys and values, and the core over them."""
    made = work.batch * config.num_attention_heads * work.kv_len * work.itemsize
    ledger.take(plain=made * config.qk_nope_head_dim, value=made * config.v_head_dim, key=made * config.head_dim)
    ledger.drop("plain")
    shape = work.shape(core_heads(config, absorbed=False))
    given = Pass(shape, work.itemsize, work.masked, work.causal, split_query=work.layer, split_values=True)
    core(ledger, given)
    if ledger.holds("logsumexp"):
        # Else it is worked out when it is asked for, and keys and values wait for that.
        ledger.drop("key", "value")


def _absorbed(ledger: Ledger, config: LatentConfig, work: Work, core: Play) -> None:
    """Take the queries moved to where the latents are, the core over these, and the values that come out."""
    rows = work.batch * config.num_attention_heads * work.q_len * work.itemsize
    ledger.take(moved=rows * config.kv_lora_rank, absorbed=rows * config.kept)
    ledger.drop("moved")
    core(ledger, Pass(work.shape(core_heads(config, absorbed=True)), work.itemsize, work.masked, work.causal))
    ledger.take(released=rows * config.v_head_dim)
    if ledger.holds("logsumexp"):
        ledger.drop("absorbed")
    ledger.drop("output")
    ledger.drop("released")
    ledger.take(output=rows * config.v_head_dim)
