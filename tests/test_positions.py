"""Position encodings: against ONNX's own cases and the formulas of the papers."""

import math

import onnx.backend.test.case.node.rotaryembedding as rotary
import pytest
import torch

from attnviz.positions import POSITIONS, rotate
from attnviz.text import Refusal

EXPORTS = sorted(name for name in vars(rotary.RotaryEmbedding) if name.startswith("export_"))


def run(node, inputs):
    """Give what ``rotate`` makes of one ONNX case: positions looked up, 3-D inputs split into heads and back."""
    settings = {attribute.name: attribute.i for attribute in node.attribute}
    x, cos, sin = (torch.from_numpy(array) for array in inputs[:3])
    if len(inputs) > 3:
        places = torch.from_numpy(inputs[3])
        cos, sin = cos[places], sin[places]
    heads = x.unflatten(2, (settings["num_heads"], -1)).transpose(1, 2) if x.dim() == 3 else x
    layout = "interleaved" if settings.get("interleaved") else "half_split"
    turned = rotate(heads, cos[:, None], sin[:, None], layout=layout)
    return turned.transpose(1, 2).flatten(2) if x.dim() == 3 else turned


@pytest.mark.parametrize("export", EXPORTS)
def test_onnx_rotary_embedding(export, monkeypatch):
    cases = []
    monkeypatch.setattr(rotary, "expect", lambda node, inputs, outputs, name: cases.append((node, inputs, outputs)))
    getattr(rotary.RotaryEmbedding, export)()
    [(node, inputs, outputs)] = cases
    torch.testing.assert_close(run(node, inputs), torch.from_numpy(outputs[0]), rtol=1e-5, atol=1e-6)


def test_onnx_has_its_eight_cases():
    assert len(EXPORTS) == 8


@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rope_turns_each_pair_by_position_times_rate(layout, share):
    heads, start, width = torch.randn(1, 1, 4, 8, dtype=torch.float64), 5, int(8 * share)
    got = POSITIONS["rope"].build(base=100.0, layout=layout, partial_rotary_factor=share).turn(heads, start)
    for n in range(4):
        row = heads[0, 0, n].tolist()
        for i in range(width // 2):
            a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + width // 2)
            angle = (start + n) * 100.0 ** (-2 * i / width)
            row[a], row[b] = (
                row[a] * math.cos(angle) - row[b] * math.sin(angle),
                row[a] * math.sin(angle) + row[b] * math.cos(angle),
            )
        torch.testing.assert_close(got[0, 0, n], torch.tensor(row, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("width", [1, 2, 7, 64])
@pytest.mark.parametrize("layout", ["half_split", "interleaved"])
def test_rope_keeps_lengths_and_odd_entries(layout, width):
    heads = torch.randn(2, 3, 9, width, dtype=torch.float64)
    turned = POSITIONS["rope"].build(layout=layout).turn(heads)
    torch.testing.assert_close(turned.norm(dim=-1), heads.norm(dim=-1), rtol=0, atol=1e-12)
    assert torch.equal(turned[:, :, 0], heads[:, :, 0])
    if width % 2:
        assert torch.equal(turned[..., -1], heads[..., -1])


def test_the_two_layouts_do_not_mix():
    query, key = torch.randn(2, 1, 1, 6, 8, dtype=torch.float64)
    half, mixed = (POSITIONS["rope"].build(layout=layout) for layout in ("half_split", "interleaved"))
    scores = half.turn(query) @ half.turn(key).mT
    assert (mixed.turn(query) @ mixed.turn(key).mT - scores).abs().max() > 0.1
    # The same pairs in the other order of entries are the same rotation.
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    torch.testing.assert_close(mixed.turn(query[..., order]) @ mixed.turn(key[..., order]).mT, scores)


def test_far_positions_are_turned_exactly():
    heads = torch.tensor([[[[1.0, 0.0]]]])
    turned = POSITIONS["rope"].build().turn(heads, start=131_071)[0, 0, 0]
    torch.testing.assert_close(turned, torch.tensor([math.cos(131_071), math.sin(131_071)]), rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [1, 6, 7])
def test_sinusoidal_is_the_paper(width):
    tokens, start = torch.zeros(1, 5, width, dtype=torch.float64), 3
    waves = POSITIONS["sinusoidal"].build().add(tokens, start)[0]
    for n in range(5):
        for i in range(width):
            angle = (start + n) / 10000 ** (2 * (i // 2) / width)
            assert waves[n, i].item() == pytest.approx(math.cos(angle) if i % 2 else math.sin(angle), abs=1e-12)


@pytest.mark.parametrize("key", POSITIONS)
def test_kinds_leave_what_they_do_not_encode(key):
    position, x = POSITIONS[key].build(), torch.randn(1, 2, 5, 6)
    assert (position.add(x) is x) == (key != "sinusoidal")
    assert (position.turn(x) is x) == (key != "rope")
    half = x.bfloat16()
    assert position.turn(half).dtype == position.add(half).dtype == torch.bfloat16


def test_misuse_is_named():
    x, wave = torch.zeros(1, 1, 2, 4), torch.zeros(2, 3)
    with pytest.raises(Refusal, match="layout must be one of half_split, interleaved, got 'mirror'"):
        rotate(x, wave[:, :2], wave[:, :2], layout="mirror")
    with pytest.raises(Refusal, match=r"x must be at least twice the 3 angles wide, got \[1, 1, 2, 4\]"):
        rotate(x, wave, wave)
    with pytest.raises(Refusal, match="partial_rotary_factor must be a number from 0 to 1, got '2'"):
        POSITIONS["rope"].build(partial_rotary_factor=2)
    with pytest.raises(ValueError, match="rope has no setting theta"):
        POSITIONS["rope"].build(theta=1)
