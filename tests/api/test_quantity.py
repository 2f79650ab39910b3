"""Quantities are exact, rounded and capped as in the API server."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.api.quantity import (
    MAX_NANO,
    InvalidQuantityError,
    Quantity,
    parse_quantity,
)
from koord_sandbox import Sandbox

UNIT = 10**9
SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": 1,
    "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        ("0", 0),
        ("4", 4 * UNIT),
        (4, 4 * UNIT),
        (-4, -4 * UNIT),
        ("+4", 4 * UNIT),
        ("-4", -4 * UNIT),
        ("100m", UNIT // 10),
        ("0.1", UNIT // 10),
        (".5", UNIT // 2),
        ("5.", 5 * UNIT),
        ("1.5Gi", 3 * 2**29 * UNIT),
        ("1e3", 1000 * UNIT),
        ("1E3", 1000 * UNIT),
        ("1e-3", UNIT // 1000),
        ("2E", 2 * 10**18 * UNIT),
        ("1E-2", UNIT // 100),
        ("0.1n", 1),  # finer than a billionth: away from zero
        ("-0.1n", -1),
        ("1.1n", 2),
        ("1e-99999999999999999999", 1),
        ("0e99999999999999999999", 0),
        ("9223372036854775807", MAX_NANO),
        ("9223372036854775808", MAX_NANO),  # larger than the server's maximum
        ("-16Ei", -MAX_NANO),
        ("1e99999999999999999999", MAX_NANO),
        (2**80, MAX_NANO),
    ],
)
def test_amounts(text: str | int, nano: int) -> None:
    assert parse_quantity(text).nano == nano


@pytest.mark.parametrize(
    "text",
    ["", ".", "-", "+", "m", "Gi", "1 Gi", " 1", "1\n", "1Q", "1ki", "1K", "1mi", "1e", "1e1.5",
     "1e1Gi", "0x10", "1,5", "1_000", "--1", "NaN", "inf", "\u0661", "1" * 65,
     True, 0.5, None, [], b"1"],
)  # fmt: skip
def test_invalid_quantities_are_named(text: object) -> None:
    with pytest.raises(InvalidQuantityError) as refusal:
        parse_quantity(text)  # type: ignore[arg-type]

    assert repr(text)[:60] in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [("1", 1000, 1), ("1m", 1, 1), ("1u", 1, 1), ("1001m", 1001, 2), ("-1001m", -1001, -2),
     ("1Ki", 1_024_000, 1024), ("0", 0, 0), ("-1u", -1, -1)],
)  # fmt: skip
def test_units_are_rounded_away_from_zero(text: str, milli: int, whole: int) -> None:
    quantity = parse_quantity(text)

    assert (quantity.milli, quantity.whole) == (milli, whole)


def test_equal_amounts_with_different_texts_are_equal() -> None:
    assert parse_quantity("1Gi") == parse_quantity("1024Mi") == parse_quantity(2**30)
    assert hash(parse_quantity("0.5")) == hash(parse_quantity("500m"))
    assert parse_quantity("999m") < parse_quantity("1")


@given(
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**20),
    st.one_of(st.none(), st.text("0123456789", max_size=12)),
    st.sampled_from(sorted(SUFFIXES)),
)
def test_parsing_agrees_with_fractions(
    sign: str, whole: int, decimals: str | None, suffix: str
) -> None:
    number = str(whole) if decimals is None else f"{whole}.{decimals}"
    exact = Fraction(number.removesuffix(".")) * SUFFIXES[suffix] * UNIT

    nano = parse_quantity(f"{sign}{number}{suffix}").nano

    rounded = min(-(-exact.numerator // exact.denominator), MAX_NANO)
    assert nano == (-rounded if sign == "-" else rounded)


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    with suppress(InvalidQuantityError):
        assert isinstance(parse_quantity(text), Quantity)


@pytest.mark.sandbox
def test_server_parses_the_same_amounts(server: Sandbox) -> None:
    texts = ["0", "4", "0.1", "1.5Gi", "1024Mi", "1e3", "1E3", "2E", "123456789", "1000k", "1.1n",
             "0.1n", "0.5Ki", "0.3Ki", "7.000000001", "9223372036854775807", "5.", "+2", "1e-3",
             "1000Ki", "3000000m", "16Ei"]  # fmt: skip
    containers = [
        {"name": f"c{i}", "image": "x", "resources": {"requests": {"memory": text}}}
        for i, text in enumerate(texts)
    ]
    pod = {"metadata": {"name": "quantities"}, "spec": {"containers": containers}}

    made = server.client.create("/api/v1/namespaces/default/pods?dryRun=All", pod)

    # The server rounds pod requests to thousandths.
    shown = [c["resources"]["requests"]["memory"] for c in made["spec"]["containers"]]
    assert {text: parse_quantity(s).milli for text, s in zip(texts, shown, strict=True)} == {
        text: parse_quantity(text).milli for text in texts
    }
