"""Results of measuring: tables that trust no file, powers and crossings of curves, and the command line."""

import gzip
import json

import pandas as pd
import pytest

from attnviz.benchmark import Contestant, Failure, Latency, Measurement, Point, Request, Speed, table
from attnviz.benchmark import __main__ as command
from attnviz.benchmark.__main__ import main, parser, requests
from attnviz.benchmark.fits import crossings, exponent, finding, power
from attnviz.benchmark.pairs import DEFAULTS, PAIRS
from attnviz.text import Refusal
from attnviz.variants import VARIANTS

PAIR = (PAIRS["mha-eager"].contestant(4, 8), PAIRS["mha-sdpa"].contestant(4, 8))
ASKED = [Request(PAIR, q_len=length) for length in (64, 128)]
RESULTS = [
    Measurement((Point(PAIR[0].label, Latency.of([1.0, 2.0]), 1.0, 10, "allocation events", "eager", None, 0.1),
                 Point(PAIR[1].label, failure=Failure("memory", "3 GiB")))),
    Failure("crashed", "SIGKILL"),
]  # fmt: skip
TABLE = table.frame(ASKED, RESULTS)


def test_a_table_has_a_row_for_each_contestant_failed_ones_too():
    assert list(TABLE.columns) == list(table.COLUMNS) and len(TABLE) == 4
    assert TABLE["latency_s"].tolist()[0] == 1.5 and TABLE["latency_s"].isna().tolist() == [False, True, True, True]
    assert TABLE["failure"].tolist()[1:] == [
        "Out of memory: an allocation was refused (3 GiB).",
        *["The measuring process ended unexpectedly (SIGKILL)."] * 2,
    ]
    assert set(TABLE["q_len"]) == {64, 128} and TABLE["date"].str.fullmatch(r"\d{4}-\d\d-\d\d").all()
    assert {"torch", "hardware", "threads", "device"} <= set(TABLE.columns)
    assert set(TABLE["heads"]) == {4} and set(TABLE["d_k"]) == {8} and TABLE["kv_heads"].tolist() == [4] * 4


@pytest.mark.parametrize("write", [table.to_csv, table.to_json])
def test_a_table_comes_back_as_it_went(write):
    pd.testing.assert_frame_equal(table.read(write(TABLE).encode()), TABLE)


def changed(**values):
    held = json.loads(table.to_json(TABLE))
    held["rows"][0] |= values
    return json.dumps(held).encode()


def many(count):
    held = json.loads(table.to_json(TABLE))
    return json.dumps({**held, "rows": [held["rows"][0] | {"label": f"curve {n}"} for n in range(count)]}).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "has no rows"),
        (b"\xff\xfe", "neither CSV nor JSON"),
        (b"{", "neither CSV nor JSON"),
        (b'{"format": "attnviz-benchmark-2", "rows": 3}', "neither CSV nor JSON"),
        (b'{"format": "other", "rows": []}', "neither CSV nor JSON"),
        (b"[" * 100_000, "columns|rows|neither"),
        (b"a,b\n1,2\n", "other columns"),
        (table.to_csv(TABLE).encode() + b"x,y\n", "other columns|holds"),
        (b" " * (table.MOST_BYTES + 1), "more than 4 MiB"),
        (changed(extra=1), r"other columns \(extra\)"),
        (changed(latency_s="fast"), "latency_s holds 'fast'"),
        (changed(latency_s=-1), "latency_s holds -1"),
        (changed(latency_s="nan"), "latency_s holds 'nan'"),
        (changed(latency_s=1e300), "latency_s holds"),
        (changed(latency_s=True), "latency_s holds True"),
        (changed(q_len=1.5), "q_len holds 1.5"),
        (changed(q_len=0), "q_len holds 0"),
        (changed(heads=2**40), "heads holds"),
        (changed(latency_s=0), "latency_s holds 0"),
        (changed(latency_s=5e-324), "latency_s holds 5e-324"),
        (changed(latency_s=float("nan")), "latency_s holds nan"),
        (changed(latency_s=float("inf")), "latency_s holds inf"),
        (changed(peak_bytes=1e308), "peak_bytes holds"),
        (changed(peak_bytes={"a": 1}), "peak_bytes holds"),
        (changed(q_len=0).replace(b'"q_len": 0', b'"q_len": ' + b"9" * 5000), "neither CSV nor JSON"),
        (b'{"format": "attnviz-benchmark-2", "rows": [' + b'{"a": ' * 50_000, "neither CSV nor JSON"),
        (changed().replace(b'"label"', b'"label": "x", "label"', 1), "'label' twice"),
        (table.to_csv(TABLE).encode().replace(b"variant", b"label", 1), "'label' twice"),
        (gzip.compress(table.to_csv(TABLE).encode()), "neither CSV nor JSON"),
        (b'a,"' + b"x" * 200_000, "neither CSV nor JSON"),
        (many(table.MOST_CURVES + 1), "more than 32 curves"),
        (changed(q_len=None), "q_len holds –"),
        (changed(label="x" * 300), "label holds"),
        (changed(label="a\nb"), "label holds"),
        (changed(label=["x"]), "label holds"),
        (changed(label=""), "label holds –"),
        (json.dumps({"format": table.FORMAT, "rows": [{}] * 5_001}).encode(), "5,000"),
    ],
)
def test_a_file_that_is_no_table_is_refused(content, words):
    with pytest.raises(Refusal, match=words):
        table.read(content)


def test_the_power_of_a_curve_is_that_of_its_long_lengths():
    square = {length: 3e-9 * length**2 for length in (1024, 2048, 4096)}
    assert exponent({**square, 64: 5.0, 128: 5.0}) == pytest.approx(2)
    # Below 1,024 tokens launching is what is timed: no power comes of that.
    assert exponent({64: 1.0, 128: 2.0, 256: 4.0, 1024: 16.0, 2048: 32.0}) is None and exponent({}) is None
    fit = power(square)
    assert (
        fit is not None and fit.at(2048) == pytest.approx(square[2048]) and fit.at(128) == pytest.approx(3e-9 * 2**14)
    )
    # Numbers from a file may lie on a wall; the line ends where floats do.
    steep = power({1024: 1e-12, 1025: 1.0, 1026: 1e9})
    assert steep is not None and steep.at(2**30) < float("inf") and steep.at(1) == 0


def test_a_crossing_lies_where_the_order_changes_for_good():
    lengths = [2**power for power in range(6, 13)]
    curves = {"square": {n: n**2 / 1000 for n in lengths}, "line": {n: float(n) for n in lengths}}
    (cross,) = crossings(curves)
    assert (cross.faster, cross.slower) == ("line", "square")
    assert cross.length == pytest.approx(1000) and cross.value == pytest.approx(1000)
    assert crossings({"a": {1: 1.0, 2: 1.0}, "b": {1: 2.0, 2: 2.0}}) == []
    assert crossings({"a": {1: 1.0}, "b": {2: 2.0}}) == []


def test_the_sentence_says_what_the_numbers_say():
    lengths = (1024, 2048, 4096)
    curves = {"square": {n: n**2 / 1.5e6 for n in lengths}, "line": {n: n / 1e3 for n in lengths}}
    said = finding(curves)
    assert said is not None
    assert said.en == (
        "At 4,096 tokens line is fastest (4.1 s), 2.73× faster than square. Time grows as L^2.00 (square), "
        "L^1.00 (line). line overtakes square at about 1,500 tokens."
    )
    assert "4,096" in said.zh and "1,500" in said.zh
    hedged = finding(curves, [("line", 4096)])
    assert hedged is not None and "noisy" in hedged.en and "波动" in hedged.zh
    assert finding(curves, [("line", 1024)]) == said
    assert finding({}) is None and finding({"a": {}}) is None
    alone = finding({"a": {64: 0.5}})
    assert alone is not None and alone.en == "At 64 tokens a takes 500 ms."


def test_every_way_to_compute_a_variant_is_a_pair():
    assert list(PAIRS) == [f"{key}-{backend}" for key in VARIANTS for backend in VARIANTS[key].backends]
    assert len({pair.name for pair in PAIRS.values()}) == len(PAIRS) and set(DEFAULTS) <= set(PAIRS)
    assert PAIRS["gqa-flash"].name == "GQA · flash"


def test_the_least_time_is_that_of_the_slower_roof():
    speed = Speed(flops=100.0, bandwidth=10.0)
    assert speed.seconds(1000, 10) == 10 and speed.seconds(10, 1000) == 100


def test_the_command_line_names_what_cannot_be_asked(tmp_path, capsys):
    assert main(["--device", "tpu"]) == 2 and "device must be one of" in capsys.readouterr().err
    assert main(["--output", "x.txt"]) == 2 and ".json or .csv" in capsys.readouterr().err
    assert main(["--lengths", "0"]) == 2 and "q_len must be" in capsys.readouterr().err
    assert main(["--heads", "0"]) == 2 and "--heads must be" in capsys.readouterr().err
    assert main(["--kv-heads", "3", "--pairs", "gqa-sdpa"]) == 2 and "must divide --heads" in capsys.readouterr().err
    assert main(["--kv-heads", "4"]) == 2 and "needs one of gqa-eager, gqa-sdpa" in capsys.readouterr().err
    shared = requests(parser().parse_args(["--kv-heads", "4", "--pairs", "gqa-sdpa"]))[0].contestants[0]
    assert shared.config.num_key_value_heads == 4 and shared.label == "GQA 8/4 · sdpa"
    assert main(["--d-k", "-1"]) == 2 and "--d-k must be" in capsys.readouterr().err
    # Before anything is measured.
    for target, words in (
        (tmp_path / "none" / "x.json", "a folder that is there"),
        (tmp_path / "x.csv", "can be written"),
    ):
        (tmp_path / "x.csv").mkdir(exist_ok=True)
        assert main(["--lengths", "131072", "--output", str(target)]) == 2 and words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--pairs", "hydra"])
    twice = requests(
        parser().parse_args(["--pairs", "mha-eager", "mha-eager", "--lengths", "8", "8", "--device", "cpu"])
    )
    assert len(twice) == 1 and len(twice[0].contestants) == 1
    quick = requests(parser().parse_args(["--quick"]))
    # Each request ends within its limit, and a crash starts the process once more.
    assert sum(request.limit_s for request in quick) <= 90


def test_the_command_line_measures_and_writes(tmp_path, capsys):
    target = tmp_path / "found.csv"
    arguments = ["--lengths", "16", "32", "--heads", "2", "--d-k", "8", "--quick", "--device", "cpu"]
    assert main([*arguments, "--pairs", "mha-eager", "mha-sdpa", "--output", str(target)]) == 0
    held = table.read(target.read_bytes())
    assert held["latency_s"].notna().all() and held["q_len"].tolist() == [16, 16, 32, 32]
    said = capsys.readouterr().out
    assert "MHA · eager" in said and "At 32 tokens" in said


def test_the_command_line_measures_decode_steps(tmp_path, capsys):
    target = tmp_path / "steps.json"
    arguments = [
        "--lengths",
        "16",
        "32",
        "--heads",
        "2",
        "--d-k",
        "8",
        "--quick",
        "--device",
        "cpu",
        "--mode",
        "decode",
    ]
    assert main([*arguments, "--pairs", "mha-sdpa", "--mask", "causal", "--output", str(target)]) == 0
    held = table.read(target.read_bytes())
    assert held["q_len"].tolist() == [1, 1] and held["kv_len"].tolist() == [16, 32]
    assert set(held["what"]) == {"decode"} and set(held["mask"]) == {"full"} and held["latency_s"].notna().all()
    said = capsys.readouterr().out
    assert "At 32 tokens MHA · sdpa takes" in said and "causal" not in said and "      16  MHA" in said


def test_the_command_line_says_what_is_noisy_and_why_a_peak_is_missing(capsys):
    asked = [Request(PAIR, q_len=8)]
    point = Point("a", Latency(1.0, 0.5, 1.5, 0.5, 8))
    cut = Failure("time", "30 s", partial=Measurement((point, Point("b", Latency(1.0, 0.9, 1.1, 0.5, 8)))))
    held = table.frame(asked, [cut])
    assert [length for _, length in command._hints(held)] == [8]
    command._print(held)
    assert capsys.readouterr().out.count("Stopped: it took longer than 30 s.") == 2


def test_a_time_of_few_calls_is_a_hint_and_one_that_is_missing_is_none():
    times = {
        "a": Latency(1.0, 1.0, 1.0, 1.0, 2),
        "b": Latency(1.0, 0.9, 1.1, 0.5, 3),
        "c": Latency(1.0, 0.8, 1.2, 0.5, 9),
    }
    points = tuple(Point(name, time) for name, time in times.items())
    held = pd.concat([
        table.frame([Request((contestant,), q_len=8)], [Measurement((point,))])
        for contestant, point in zip((*PAIR, PAIR[0]), points, strict=True)
    ], ignore_index=True)  # fmt: skip
    assert table.noisy(held).tolist() == [True, False, True]
    assert table.noisy(held.assign(runs=pd.NA, latency_s=[1.0, 1.0, pd.NA])).tolist() == [False, False, False]
    assert table.noisy(held.iloc[:0]).tolist() == []


def test_a_file_cannot_draw_more_curves_than_there_is_room_for():
    """Curves are named by hardware and settings too, so that these count."""
    held = table.frame([Request(PAIR[:1], q_len=8)], [Failure("cancelled")])
    many = pd.concat([held.assign(hardware=f"machine {index}") for index in range(33)], ignore_index=True)
    assert len(table.read(table.to_csv(many.iloc[:32]).encode())) == 32
    with pytest.raises(Refusal, match="more than 32 curves"):
        table.read(table.to_csv(many).encode())


def test_contestants_of_the_command_line_are_plain():
    (request, *_) = requests(parser().parse_args(["--quick", "--pairs", "linear-chunked", "--device", "cpu"]))
    sizes = {"hidden_size": 512, "num_attention_heads": 8}
    assert request.contestants == (Contestant("linear", "chunked", sizes, label="linear · chunked"),)
