"""What attention replaced: gradients, chains and trainings, each held to something known."""

import runpy

import numpy as np
import pytest
import torch

from attnviz import inputs
from attnviz.recurrence import MODELS, Recall, Sizes, chain, gradients, predicted_chain, time_forward
from attnviz.recurrence import measure as measuring
from attnviz.recurrence.recall import KINDS
from attnviz.recurrence.snippet import gradient_snippet

SMALL = Sizes(width=16, layers=3)


@pytest.mark.parametrize("key", MODELS)
def test_no_model_looks_ahead_and_all_give_their_input_s_shape(key):
    model, x = MODELS[key].build(SMALL), inputs.random_normal((2, 12, 16), 0)
    changed = x.clone()
    changed[:, 8:] = inputs.random_normal((2, 4, 16), 1)
    one, other = model(x), model(changed)
    assert one.shape == x.shape
    torch.testing.assert_close(one[:, :8], other[:, :8])
    assert (one[:, 8:] != other[:, 8:]).any(-1).all()


@pytest.mark.parametrize("key", MODELS)
def test_weights_follow_the_seed_and_leave_torch_s_generator_alone(key):
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    drawn = [list(MODELS[key].build(Sizes(width=16, seed=seed)).parameters()) for seed in (1, 1, 2)]
    assert torch.equal(torch.rand(3), want)
    assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(drawn[0], drawn[2], strict=True))


def test_the_gradient_is_what_differences_give():
    sizes, length, step = Sizes(width=4, layers=2), 6, 1e-6
    x = inputs.random_normal((measuring.SEQUENCES, length, 4), sizes.seed + 1).double()
    toward = inputs.random_normal((measuring.SEQUENCES, 4), sizes.seed + 2).double()
    found = gradients(sizes, length)
    for key, model in MODELS.items():
        built = model.build(sizes).double()
        for distance in range(length):
            slopes = []
            for entry in range(4):
                up, down = x.clone(), x.clone()
                up[:, length - 1 - distance, entry] += step
                down[:, length - 1 - distance, entry] -= step
                with torch.no_grad():
                    slopes.append((((built(up) - built(down))[:, -1] * toward).sum(-1)) / (2 * step))
            want = torch.stack(slopes).square().sum(0).mean().sqrt()
            assert found[key][distance] == pytest.approx(float(want), rel=1e-4, abs=1e-9)


def test_gradients_behave_as_the_page_says():
    found = gradients(Sizes(), 64)
    for key in ("rnn", "lstm"):
        assert found[key][63] < 1e-9 * found[key][0]
    assert found["lstm"][30] > 100 * found["rnn"][30]
    # Weights of variance 1/(3 h) shrink a random direction by √3; tanh takes its part besides.
    rate = (found["rnn"][20] / found["rnn"][5]) ** (1 / 15)
    assert 0.3 < rate < 3**-0.5
    large = gradients(Sizes(gain=2.5), 64)
    assert large["rnn"][63] > 1e15 * found["rnn"][63]
    reach = Sizes().reach
    assert reach == 16 and (found["conv"][: reach + 1] > 0).all() and not found["conv"][reach + 1 :].any()
    far = found["attention"][1:]
    assert far.min() > far.max() / 10 and abs(np.corrcoef(np.arange(63), far)[0, 1]) < 0.4


@pytest.mark.parametrize(
    ("sizes", "length"), [(Sizes(), 64), (Sizes(width=12, layers=2, gain=2.35, seed=7), 9), (Sizes(4, 64, gain=0), 2)]
)
def test_the_code_measures_the_same_gradients(sizes, length, tmp_path, capsys):
    path = tmp_path / "view.py"
    path.write_text(gradient_snippet(sizes, length), encoding="utf-8")
    with torch.random.fork_rng():
        space = runpy.run_path(str(path))
    want = gradients(sizes, length)
    assert list(space["gradient"]) == list(want) == list(MODELS)
    for key, norms in want.items():
        np.testing.assert_allclose(space["gradient"][key].numpy(), norms, rtol=1e-9, atol=1e-300)
    assert f"{length - 1} tokens back" in capsys.readouterr().out


def test_only_what_a_model_depends_on_changes_it():
    base, more = gradients(SMALL, 20), gradients(SMALL._replace(layers=5, gain=1.5), 20)
    assert (base["attention"] == more["attention"]).all()
    for key in ("rnn", "lstm", "conv"):
        assert (base[key] != more[key]).any()
    assert (gradients(SMALL._replace(layers=5), 20)["rnn"] == base["rnn"]).all()


def test_chains_grow_as_they_must():
    found = {length: chain(SMALL, length) for length in (8, 16, 32)}
    for key in ("rnn", "lstm"):
        step = (found[32][key] - found[16][key]) / 16
        assert step == (found[16][key] - found[8][key]) / 8 >= 2
    for key in ("conv", "attention"):
        assert found[8][key] == found[32][key]
    deeper = chain(SMALL._replace(layers=6), 8)
    assert deeper["conv"] > found[8]["conv"] and deeper["attention"] == found[8]["attention"]
    assert predicted_chain(SMALL, 9) == {"rnn": 9, "lstm": 9, "conv": 3, "attention": 1}


def test_times_are_measured_for_every_model_and_length(monkeypatch):
    monkeypatch.setattr(measuring, "LENGTHS", (4, 8))
    monkeypatch.setattr(measuring, "ROUNDS", 2)
    found = time_forward(SMALL)
    assert found.rounds == 2 and set(found.seconds) == set(MODELS)
    assert all(len(each) == 2 and min(each) > 0 for each in found.seconds.values())


def test_attention_learns_to_say_the_first_token_where_a_last_state_has_not_yet():
    race = Recall(24, 0)
    assert race.steps == 0
    for _ in range(160):
        race.step()
    assert race.steps == 160 and set(race.shown) == set(KINDS)
    right = {kind: np.mean([step.right for step in race.shown[kind][-20:]]) for kind in KINDS}
    assert right["attention"] > 0.9 and max(right["rnn"], right["lstm"]) < 0.3
    assert all(2 < race.shown[kind][0].loss < 4 for kind in KINDS)
    again = Recall(24, 0)
    again.step()
    assert [again.shown[kind][0] for kind in KINDS] == [race.shown[kind][0] for kind in KINDS]


def test_a_last_state_can_learn_it_too_where_the_first_token_is_near():
    race = Recall(2, 0)
    for _ in range(160):
        race.step()
    for kind in KINDS:
        assert np.mean([step.right for step in race.shown[kind][-20:]]) > 0.9
