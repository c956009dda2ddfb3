"""Why many heads: what one head misses is what averaging leaves, and no output matrix brings it back."""

import pytest
import torch

from attnviz.figures.variants import missing
from attnviz.text import LANGUAGES
from attnviz.variant_view import retrieval as task
from pages.ui.translate import say
from tests import oracle
from tests.pages import link, plain, plots, said, visit

WANTED = (1, 2, 4)


@pytest.mark.parametrize("wanted", WANTED)
def test_too_few_heads_miss_what_averaging_leaves(wanted):
    found = task.retrieval(wanted, 0)
    assert [read.heads for read in found.reads] == list(task.HEADS) and len(found.places) == wanted
    for read in found.reads:
        assert read.predicted == pytest.approx(max(0, 1 - read.heads / wanted) ** 0.5)
        if read.heads <= 2:  # keys of 32 numbers and more hardly ever look alike
            assert read.error == pytest.approx(read.predicted, abs=0.01)
    errors = [read.error for read in found.reads if read.heads >= wanted]
    assert errors == sorted(errors) and errors[-1] > 0.9  # narrower and narrower keys


@pytest.mark.parametrize("wanted", WANTED)
def test_each_head_looks_at_the_positions_it_serves(wanted):
    found = task.retrieval(wanted, 3)
    for read in found.reads:
        torch.testing.assert_close(torch.tensor(read.weights).sum(1), torch.ones(read.heads))
        if read.heads > wanted or read.heads > 2:
            continue
        served = wanted // read.heads
        for row in read.weights:
            assert sorted(row[list(found.places)])[-served:] == pytest.approx([1 / served] * served, abs=0.02)
    assert {int(row.argmax()) for row in found.reads[task.HEADS.index(wanted)].weights} == set(found.places)


def test_no_output_matrix_takes_an_average_apart():
    generator = torch.Generator().manual_seed(5)
    keys, values = (torch.randn(4096, task.PLACES, task.WIDTH, generator=generator) for _ in range(2))
    places = torch.rand(4096, task.PLACES, generator=generator).argsort(1)[:, :2]
    query, key, value = task._inputs(1, keys, values, places)
    output = oracle.attention(query[:8] * 16, key[:8], value[:8], scale=1.0).output
    # In numbers: half of each wanted value, which is what the matrix below is given.
    half = values.take_along_dim(places[..., None], 1).mean(1)
    torch.testing.assert_close(torch.as_tensor(output)[:, 0, 0].float(), half[:8], atol=0.01, rtol=0)
    target = task._targets(values, places)
    torch.testing.assert_close(target[:, :32], values[torch.arange(4096), places[:, 0], :32])
    torch.testing.assert_close(target[:, 32:], values[torch.arange(4096), places[:, 1], 32:])
    matrix = torch.linalg.lstsq(half[:2048], target[:2048]).solution
    missed = (half[2048:] @ matrix - target[2048:]).norm() / target[2048:].norm()
    assert missed == pytest.approx(0.5**0.5, abs=0.03)


@pytest.mark.parametrize(("heads", "wanted"), [(1, 4), (2, 4), (4, 4), (8, 2)])
def test_a_query_meets_every_position_it_serves_alike(heads, wanted):
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(16, task.PLACES, task.WIDTH, generator=generator)
    places = torch.rand(16, task.PLACES, generator=generator).argsort(1)[:, :wanted]
    query, key, _ = task._inputs(heads, keys, keys, places)
    assert key.shape == (16, heads, task.PLACES, task.WIDTH // heads)
    scores = (key @ query.mT)[..., 0]
    for head in range(heads):
        served = places[:, head * wanted // heads : -(-(head + 1) * wanted // heads)]
        torch.testing.assert_close(
            scores[:, head].take_along_dim(served, 1), torch.ones(served.shape), atol=1e-4, rtol=0
        )


def test_the_curve_has_dots_on_a_line_and_marks_what_is_wanted():
    names = {name: name for name in ("heads", "missing", "measured", "predicted", "wanted")}
    figure = missing((1, 2, 4), (0.7, 0.0, 0.1), (0.71, 0.0, 0.0), wanted=2, names=names)
    line, dots = figure["data"]
    assert (line["y"], dots["y"]) == ([0.71, 0.0, 0.0], [0.7, 0.0, 0.1])
    assert (line["mode"], dots["mode"]) == ("lines", "markers")
    assert figure["layout"]["shapes"][0]["x0"] == figure["layout"]["annotations"][0]["x"] == 1
    assert figure["layout"]["xaxis"]["ticktext"] == ["1", "2", "4"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("wanted", ["1", "2", "4"])
def test_the_section_by_link(wanted, language):
    app = visit(language, page="variants", wanted=wanted)
    assert link(app) == ({} if wanted == "2" else {"wanted": wanted})
    found = task.retrieval(int(wanted), 0)
    one, many = (found.reads[task.HEADS.index(heads)] for heads in (1, int(wanted)))
    caption = plots(app)["variants.heads_weights"]["layout"]["meta"]["caption"]
    for read in {one.heads: one, many.heads: many}.values():
        assert (f"{read.error:.1%}" if read.error >= 0.0005 else "< 0.1%") in caption
    rows = plots(app)["variants.heads_weights"]["data"]
    assert len(rows) == (1 if wanted == "1" else 1 + int(wanted))
    assert "1905.10650" in said(app) and "{" not in said(app)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_words_are_of_as_many_positions_as_are_set(language):
    for wanted in WANTED:
        words = said(visit(language, page="variants", wanted=str(wanted)))
        held = [f"{name} 1 ⁄ {wanted}" in words for name in ("gets", "各占")]
        assert any(held) == (wanted > 1)
        part, one = task.WIDTH // wanted, say(language, "variants.heads.average_one")
        names = (f"another {part} numbers", f"各取不同的 {part} 个数")
        assert any(name in words for name in names) == (wanted > 1) and (one in words) == (wanted == 1)
        assert str(task.TRIALS // 2) in words


def test_a_number_of_positions_that_is_not_offered_is_named():
    app = visit(page="variants", wanted="3")
    assert "wanted must be one of 1, 2, 4, got '3'." in plain(app.warning[0].value)
