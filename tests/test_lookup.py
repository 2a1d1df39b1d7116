from __future__ import annotations

import re
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from fedxray import lookup
from fedxray.errors import BadInput, check_whole
from fedxray.files import read_json
from fedxray.lookup import harmless_output, load, load_factory, users_code, without_records


def test_names_and_names_inside_names() -> None:
    assert load("collections:OrderedDict") is OrderedDict
    assert load("collections:OrderedDict.fromkeys")("a") == {"a": None}
    assert load_factory("collections:OrderedDict", "x") is OrderedDict


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no-colon", '"module:function", got'),
        (":build", '"module:function", got'),
        ("collections:", '"module:function", got'),
        ("package_that_is_not_there:build", "beside the plan.*PYTHONPATH"),
        ("collections:Ordered", "a function Ordered in collections, got nothing of that name"),
        ("collections:OrderedDict.x.y", "nothing of that name"),
        ("my_code.network", "Did you mean my_code:network?"),
        ("collections:OrderdDict", "Did you mean collections:OrderedDict?"),
        ("string:digits", "a function digits in string, got str"),
    ],
)
def test_a_bad_factory_is_refused_in_one_wording(spec: str, words: str) -> None:
    with pytest.raises(BadInput, match=f"^attack.factory: .*{words}"):
        load_factory(spec, "attack.factory")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def build(:", r"SyntaxError: .*\(in .*own_code\.py:1\)"),
        ("x = 1\n1 / 0", r"ZeroDivisionError: division by zero \(in .*own_code\.py:2\)"),
        ("import sys\nsys.exit('bye')", r"SystemExit: bye \(in .*own_code\.py:2\)"),
        ("import absent_package", r"without an error, got .*'absent_package' \(in .*own_code\.py:1\)"),
        ("import json\njson.loads('{')", r"JSONDecodeError: .*\(in .*own_code\.py:2\)"),
    ],
)
def test_an_error_inside_a_users_module_is_reported_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    (tmp_path / "own_code.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadInput, match=f"^attack.factory: .*{words}"):
        load_factory("own_code:build", "attack.factory")


def test_an_interrupt_and_a_message_for_the_user_go_through() -> None:
    with pytest.raises(KeyboardInterrupt), users_code("x", "y"):
        raise KeyboardInterrupt
    with pytest.raises(BadInput, match=r"^mine: "), users_code("x", "y"):
        raise BadInput("mine", expected="a", got="b", remedy="c")


def raised(work: object) -> BaseException:
    try:
        work()  # type: ignore[operator]
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("it did not raise")


def own_error() -> None:
    raise BadInput("cell", expected="a number", got="4711", remedy="Fix 4711.")


def wrapped_error() -> None:
    with users_code("factory", "x:build to return a network"):
        raise ValueError("4711")


@pytest.mark.parametrize(
    ("work", "words"),
    [
        (lambda: int("patient 4711"), r"ValueError in test_lookup\.py, line \d+"),
        (own_error, r"BadInput in test_lookup\.py, line \d+"),
        (
            wrapped_error,
            r"factory: expected x:build to return a network, got ValueError in test_lookup\.py, line \d+\. .*",
        ),
        (
            lambda: check_whole("rounds", "4711", least=1, usual=3),
            r"rounds: expected a whole number of at least 1\. Try 3\.",
        ),
        (lambda: read_json(Path("4711", "no.json")), r".*: expected a readable file, got FileNotFoundError in .*\. .*"),
        (lambda: torch.zeros(2) @ torch.zeros(3), r"RuntimeError in test_lookup\.py, line \d+"),
    ],
)
def test_outside_private_an_error_quotes_no_value(work: object, words: str) -> None:
    assert re.fullmatch(words, without_records(raised(work)))


def test_what_quotes_nothing_keeps_its_words(tmp_path: Path) -> None:
    from fedxray.federation.folder import Damaged, read_transcript

    problem = raised(lambda: read_transcript(tmp_path, model=torch.nn.Linear(1, 1), space=None))  # type: ignore[arg-type]
    assert isinstance(problem, Damaged) and without_records(problem) == str(problem)


def test_what_a_block_prints_is_shown_line_by_line_and_cut(capsys: pytest.CaptureFixture[str]) -> None:
    with harmless_output():
        print("a\tb\x1b[2J", "c", sep="\n")
        print("x" * (2 * lookup.LONGEST_LINE))
        sys.stdout.buffer.write(b"\xff\x9b")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["a b\ufffd[2J", "c", "x" * lookup.LONGEST_LINE + "...", "\ufffd\ufffd"]
    with harmless_output():
        print("\n" * 1000)
    assert capsys.readouterr().err.splitlines()[-1] == lookup.NOT_SHOWN


def test_a_block_may_close_or_replace_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    with harmless_output():
        sys.stdout.close()
        sys.stderr = None  # type: ignore[assignment]
    assert sys.stdout is before and sys.stderr is not None
