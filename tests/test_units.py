"""Numbers for people."""

import math
import re

import pytest

from attnviz import units


@pytest.mark.parametrize(
    ("value", "binary", "decimal"),
    [
        (0, "0 B", "0 B"),
        (1, "1 B", "1 B"),
        (999, "999 B", "999 B"),
        (1000, "1,000 B", "1 kB"),
        (1023, "1,023 B", "1.02 kB"),
        (1024, "1 KiB", "1.02 kB"),
        (1536, "1.5 KiB", "1.54 kB"),
        (1010 * 1024, "1,010 KiB", "1.03 MB"),
        (2**20 - 1, "1 MiB", "1.05 MB"),
        (10**9 - 1, "954 MiB", "1 GB"),
        (1.5 * 2**30, "1.5 GiB", "1.61 GB"),
        (2**62, "4,096 PiB", "4,612 PB"),
        (-1536, "−1.5 KiB", "−1.54 kB"),
    ],
)
def test_bytes(value, binary, decimal):
    assert units.binary_bytes(value) == binary
    assert units.decimal_bytes(value) == decimal


def test_golden_sizes_read_as_they_are_quoted():
    assert units.binary_bytes(61 * 576 * 2 * 163_840, digits=4) == "10.72 GiB"
    assert units.binary_bytes(70_272) == "68.6 KiB"
    assert units.binary_bytes(32 * 4096 * 4096 * 2, digits=4) == "1 GiB"


def test_case_82_both_units_are_given_and_never_mixed():
    assert units.both_bytes(1.5 * 2**30) == "1.5 GiB (1.61 GB)"
    assert units.both_bytes(500) == "500 B"
    for power in range(1, 60):
        inside, outside = re.fullmatch(r"(.*) \((.*)\)", units.both_bytes(1000 * 1.9**power)).groups()
        assert re.search(r" ([KMGTP]iB|B)$", inside)
        assert re.search(r" [kMGTP]B$", outside)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (1e-12, "0.001 ns"),
        (5e-9, "5 ns"),
        (9.996e-7, "1 µs"),
        (0.99999e-3, "1 ms"),
        (0.0123, "12.3 ms"),
        (1, "1 s"),
        (59.99, "60 s"),
        (99.96, "1 min 40 s"),
        (3599.9, "1 h 0 min"),
        (5400, "1 h 30 min"),
        (-0.002, "−2 ms"),
        (math.nan, "NaN s"),
        (math.inf, "∞ s"),
    ],
)
def test_seconds(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0123, "12.3 ms"), (99.9, "99.9 s"), (100, "1.7 min"), (1e4, "2.8 h"), (1e5, "1.2 d"), (1e8, "3.2 y"),
     (-1e4, "−2.8 h"), (math.inf, "∞ s")],
)  # fmt: skip
def test_short_seconds(value, text):
    assert units.short_seconds(value) == text


def test_marks_of_long_times_are_round():
    marks = [units.short_seconds(mark) for mark in units.TIME_MARKS[12:24]]
    assert marks == ["1 s", "10 s", "60 s", "10 min", "1 h", "1 d", "10 d", "100 d", "1 y", "10 y", "100 y", "1,000 y"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 FLOP"),
        (1, "1 FLOP"),
        (999_999, "1 MFLOP"),
        (75.2e9, "75.2 GFLOP"),
        (1613e12, "1.61 PFLOP"),
        (1e-5, "1e−5 FLOP"),
    ],
)
def test_flops(value, text):
    assert units.flops(value) == text


def test_speeds():
    assert units.flops_per_second(740e12) == "740 TFLOP/s"
    assert units.bytes_per_second(3.35e12) == "3.35 TB/s"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (3.14159, "3.14"),
        (0.5, "0.5"),
        (999.9, "1,000"),
        (123_456, "123,000"),
        (-2, "−2"),
        (0.000123456, "0.000123"),
        (0.0000123, "1.23e−5"),
        (1e20, "1e20"),
        (math.nan, "NaN"),
        (-math.inf, "−∞"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert units.number(value) == text


def test_digits_can_be_asked_for():
    assert units.number(math.pi, 6) == "3.14159"


def test_counts_are_exact_and_short_ones_are_not():
    assert units.count(4_198_400) == "4,198,400"
    assert units.count(-3) == "−3"
    assert units.short_count(4_198_400) == "4.2M"
    assert units.short_count(16) == "16"


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(512, "512"), (1000, "1,000"), (1024, "1K"), (1536, "1,536"), (131_072, "128K"), (163_840, "160K"), (2**20, "1M")],
)
def test_a_short_length_never_rounds(tokens, text):
    assert units.short_length(tokens) == text


def test_ratio_and_percent():
    assert units.ratio(0.28) == "0.28×"
    assert units.percent(0.125) == "12.5%"
