"""A sentence that goes through a layer token by token: every step with the cache, and the same answer without it."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from attnviz import inputs
from attnviz.arrays import to_numpy
from attnviz.kv_cache import LAYOUTS, STORAGES, KVCache, Layout, Step, start
from attnviz.kv_cache_view.view import Scene
from attnviz.positions import POSITIONS
from attnviz.variants import VARIANTS
from attnviz.variants.base import AttentionOutput, Tensors
from attnviz.view_run import WIDTH

# DeepSeek-V2, section 2.1.4: the latent is four heads wide, the rotary part half a head.
LATENT_HEADS, ROTARY_SHARE = 4, 2


class Layer(NamedTuple):
    """Hold one layer with random weights and the tokens that come in, ``x`` being ``[1, tokens, WIDTH]``."""

    config: Any
    weights: Tensors
    x: torch.Tensor


@dataclass(frozen=True)
class Answer:
    """Hold one step of the decoding; what it is compared with is computed when it is first asked for.

    Args:
        scene: The scene that it is a step of.
        step: What the cache did.
        before: Positions that the step read from the cache.
        after: The cache after it.
        weights: ``[heads, new, tokens so far]`` of the step's rows; NaN where the cache no longer has the key.
    """

    scene: Scene
    step: Step
    before: tuple[int, ...]
    after: KVCache
    weights: np.ndarray

    @property
    def seen(self) -> int:
        """Tokens that have come in."""
        return self.step.start + self.step.new

    @cached_property
    def _whole(self) -> AttentionOutput:
        """Give everything computed again, without a cache."""
        config, weights, x = layer_of(self.scene)
        rule, position = layout_of(self.scene).mask, self.after.position
        with torch.no_grad():
            return VARIANTS[self.scene.variant].attend(
                config, weights, x[:, : self.seen], allowed=rule, position=position, backend="eager"
            )

    @cached_property
    def without(self) -> np.ndarray:
        """Weights without a cache, ``[heads, tokens so far, tokens so far]``."""
        found = self._whole.core.weights
        assert found is not None  # eager gives them
        return to_numpy(found[0])

    @cached_property
    def output_error(self) -> float:
        """Norm of the difference of the two outputs of the new tokens over the norm without a cache."""
        got, want = self.step.output.double(), self._whole.output[:, self.step.start :].double()
        return float((got - want).norm() / want.norm())

    @cached_property
    def weight_error(self) -> float:
        """Largest difference of a weight in the step's rows."""
        return float(np.abs(np.nan_to_num(self.weights) - self.without[:, self.step.start :]).max())


def layout_of(scene: Scene) -> Layout:
    """Give what the scene's cache keeps."""
    given = {"window": scene.window, "sinks": scene.sinks}
    return LAYOUTS[scene.layout].build(**{knob.name: given[knob.name] for knob in LAYOUTS[scene.layout].knobs})


@lru_cache(maxsize=8)
def layer(variant: str, heads: int, kv_heads: int, d_k: int, tokens: tuple[str, ...], seed: int) -> Layer:
    """Give the layer and its input: token vectors from a fixed random table."""
    kind = VARIANTS[variant]
    sizes: dict[str, int] = {"hidden_size": WIDTH, "num_attention_heads": heads}
    if variant == "mla":
        rotary = max(2, d_k // ROTARY_SHARE // 2 * 2)
        sizes |= {"head_dim": d_k + rotary, "v_head_dim": d_k, "qk_rope_head_dim": rotary}
        sizes |= {"kv_lora_rank": LATENT_HEADS * d_k}
    else:
        sizes |= {"head_dim": d_k, "num_key_value_heads": kv_heads, "biases": False}
    config = kind.config(**sizes)
    return Layer(config, kind.weights(config, seed=seed), inputs.token_vectors(tokens, WIDTH, seed)[None])


def layer_of(scene: Scene) -> Layer:
    """Give the scene's layer."""
    return layer(scene.variant, scene.heads, scene.kv_heads, scene.d_k, scene.tokens, scene.seed)


@lru_cache(maxsize=16)
def decode(scene: Scene) -> tuple[Answer, ...]:
    """Give every step: the prompt at once, then one token after the other."""
    config, weights, x = layer_of(scene)
    rope = POSITIONS["rope"].build()
    cache = start(
        scene.variant, config, weights, layout=layout_of(scene), storage=STORAGES[scene.storage], position=rope,
        backend="eager",
    )  # fmt: skip
    answers = []
    with torch.no_grad():
        for piece in x.split([scene.prompt] + [1] * (x.shape[1] - scene.prompt), dim=1):
            cache, step = cache.feed(piece)
            answers.append(_answer(scene, cache, step))
    return tuple(answers)


def _answer(scene: Scene, after: KVCache, step: Step) -> Answer:
    """Put a step's weights where their keys stand in the sentence."""
    assert step.weights is not None  # eager gives them
    rows = np.full((scene.heads, step.new, after.seen), np.nan, np.float32)
    rows[:, :, [*step.before, *range(step.start, after.seen)]] = to_numpy(step.weights[0])
    return Answer(scene, step, step.before, after, rows)


def vectors(scene: Scene, answer: Answer, head: int) -> dict[str, np.ndarray]:
    """Give Q of the new tokens and what the cache holds, ``[tokens so far, width]``; NaN where nothing is.

    Keys are as they lie in the cache: turned by their position already. MLA keeps a latent, and beside it a ``rope``
    key.
    """
    config, weights, x = layer_of(scene)
    kind = VARIANTS[scene.variant]
    with torch.no_grad():
        query, _, _ = kind.project(
            config, weights, x[:, answer.step.start : answer.seen], position=answer.after.position,
            start=answer.step.start,
        )  # fmt: skip
    found = {"query": _placed(to_numpy(query[0, head]), range(answer.step.start, answer.seen), answer.seen)}
    for name, kept in answer.after.contents(torch.float32).items():
        rows = kept[0] if kept.dim() == 3 else kept[0, head // (scene.heads // kept.shape[1])]
        found[name] = _placed(to_numpy(rows), answer.after.kept, answer.seen)
    if "latent" in found:
        found["latent"], found["rope"] = np.split(found["latent"], [config.kv_lora_rank], axis=1)
    return found


def _placed(rows: np.ndarray, places: range | tuple[int, ...], length: int) -> np.ndarray:
    placed = np.full((length, rows.shape[1]), np.nan, np.float32)
    placed[list(places)] = rows
    return placed
