"""calibrator.json: everything comes back, any byte that changed is found, nothing but numpy is needed."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semtoken as st
from semtoken.choices import CurveName
from semtoken.clustering.token_clusters import TokenClusters
from semtoken.errors import ArtifactError, CalibratorMismatchError, InvalidInputError
from semtoken.guarantees.apply import CalibratorInUse
from semtoken.guarantees.calibrator import from_bytes, to_bytes
from semtoken.support.files.strict_json import dump_json, seal
from tests import worked
from tests.guarantees.test_calibrator import METHODS, drawn, response
from tests.known import known
from tests.rows import each


def sealed(values: dict[str, Any]) -> bytes:
    """A file of these values whose checksum is right."""
    return dump_json(seal({name: value for name, value in values.items() if name != "checksum"}), indent=1) + b"\n"


@pytest.fixture(scope="module")
def made() -> tuple[st.Calibrator, st.Threshold]:
    scores, correct = drawn(40, "good model")
    return st.Calibrator.fit(scores, correct), st.Threshold.fit(scores, correct, alpha=0.2)


@pytest.fixture
def saved(made: tuple[st.Calibrator, st.Threshold], tmp_path: Path) -> Path:
    calibrator, threshold = made
    return calibrator.save(tmp_path, threshold)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_saved_comes_back(method: CurveName, tmp_path: Path) -> None:
    scores, correct = drawn(80)
    calibrator = st.Calibrator.fit([response(s) for s in scores], correct, curve=method)
    threshold = st.Threshold.fit(scores, correct, guarantee="miss_rate", alpha=0.3)
    calibrator.save(tmp_path, threshold)
    assert st.Calibrator.load(tmp_path) == replace(calibrator, threshold=threshold)


def test_accepting_everything_comes_back(tmp_path: Path) -> None:
    scores, correct = -np.arange(1, 101) / 50, [1] * 95 + [0] * 5
    threshold = st.Threshold.fit(scores, correct, alpha=0.2)
    assert threshold.min_log_score == -np.inf
    st.Calibrator.fit(scores, correct).save(tmp_path, threshold)
    assert st.Calibrator.load(tmp_path).threshold == threshold


def test_a_file_written_when_thresholds_were_uncertainties_is_read_and_stays_as_it_is() -> None:
    """It was saved before the field was called `min_log_score`; the number in it is the same with the other sign."""
    data = (Path(__file__).parent / "saved_calibrator.json").read_bytes()
    calibrator = from_bytes(data)
    threshold, saved = known(calibrator.threshold), json.loads(data)
    limit = saved["threshold"]["uncertainty"]
    assert threshold.min_log_score == -limit < 0 and threshold.tests[-1].threshold > limit
    assert threshold.accepts([-limit, math.nextafter(-limit, -math.inf)]).tolist() == [True, False]
    assert to_bytes(calibrator, saved["semtoken"]) == data


def test_a_changed_byte_is_found(saved: Path) -> None:
    data = saved.read_bytes()
    assert from_bytes(data) == st.Calibrator.load(saved.parent)
    generator = np.random.default_rng(0)
    for i in range(0, len(data), 5):  # each part of the file, and the three kinds of change in turn
        changed = data[i] ^ (1, 32, int(generator.integers(1, 256)))[i % 3]
        with pytest.raises(ArtifactError):
            from_bytes(data[:i] + bytes([changed]) + data[i + 1 :])


@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d + b"\n", lambda d: b"", lambda d: d[: len(d) // 2]])
def test_cut_and_lengthened_files_are_refused(saved: Path, change: Callable[[bytes], bytes]) -> None:
    saved.write_bytes(change(saved.read_bytes()))
    with pytest.raises(ArtifactError, match=r"calibrator\.json"):
        st.Calibrator.load(saved.parent)


SIGMOID = {"kind": "sigmoid", "a": 1.0, "b": 1.0, "m": 0.0}


@each(
    ("place", "value", "told"),
    [
        *(("n", n, "outside their ranges") for n in (3, 39)),
        *(("n_correct", n, "outside their ranges") for n in (-1, 0, 40)),
        *((name, odd, "calibrator") for name, odd in (("method", "magic"), ("format", "other"))),
        *(
            ("curve", curve, "calibrator")
            for curve in (None, SIGMOID | {"a": -0.5}, SIGMOID | {"b": -0.5}, SIGMOID | {"a": "1"})
        ),
        ("format_version", 2, "reads version 1"),
        ("venn_abers", {"kind": "temperature", "temperature": 1.0}, "calibrator"),
        ("fingerprint", {"colour": "red"}, "was changed"),
        ("scores", [1.0], "outside their ranges"),
        *(
            (f"scores.{at}", score, "outside their ranges")
            for at, score in ((-1, 0.5), (-1, 1e-9), (0, 0.0), (5, -100.0))
        ),
        ("venn_abers.p0_values.-1", 0.0, "fall"),
        ("venn_abers.p0_edges.1", -1e9, "must rise"),
        ("venn_abers.p1_values.0", -0.1, "p1_values"),
        ("venn_abers.p1_values.-1", 1.1, "p1_values"),
        *(("threshold." + name, value, "threshold") for name, value in (("alpha", 0.0), ("alpha", 1.0), ("n", 1))),
        *(("threshold." + name, value, "threshold") for name, value in (("n_wrong", -1), ("uncertainty", -0.1))),
        ("threshold.guarantee", "all", "threshold"),
        ("threshold", {}, "this release reads"),
    ],
)
def test_contents_that_no_calibrator_has_are_refused_with_a_valid_checksum(
    made: tuple[st.Calibrator, st.Threshold], place: str, value: Any, told: str
) -> None:
    with pytest.raises(ArtifactError, match=told):
        from_bytes(sealed(with_value(made, place, value)))


@each(
    ("place", "value"),
    [
        *(("threshold.uncertainty", value) for value in (0.0, None)),
        *(("threshold.n_wrong", n) for n in (0, 40)),
        *(("threshold.alpha", alpha) for alpha in (1e-9, 0.999)),
        ("scores.-1", 0.0),
    ],
)
def test_values_at_the_ends_of_their_ranges_are_read(
    made: tuple[st.Calibrator, st.Threshold], place: str, value: Any
) -> None:
    values = with_value(made, place, value)
    read = from_bytes(sealed(values))
    assert to_bytes(read) == sealed(values)


def with_value(made: tuple[st.Calibrator, st.Threshold], place: str, value: Any) -> dict[str, Any]:
    """The content of the calibrator's file, with another value at a place such as `scores.-1`."""
    values = json.loads(to_bytes(replace(made[0], threshold=made[1])))
    *way, last = (int(step) if step.lstrip("-").isdigit() else step for step in place.split("."))
    inner: Any = values
    for step in way:
        inner = inner[step]
    inner[last] = value
    return dict(values)


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Everything that an object holds, at any depth: its container and its key."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value[:2]))
    for key, item in items:
        yield value, key
        if isinstance(item, dict | list):
            yield from places_in(item)


ODD: list[Any] = [10**400, 2**63, -1, None, "1", [], {"a": 10**400}]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_odd_values_with_a_valid_checksum_are_refused_or_read(saved: Path, odd: Any) -> None:
    """Every odd value at every place leads to an error of ours that names the file, or to a calibrator."""
    values = json.loads(saved.read_bytes())
    values.pop("checksum")
    read = 0
    for container, key in list(places_in(values)):
        former, container[key] = container[key], odd
        saved.write_bytes(sealed(values))
        try:
            st.Calibrator.load(saved.parent)
            read += 1
        except ArtifactError as error:
            assert str(saved) in str(error)
        container[key] = former
    assert read == 0 or str(10**400) not in str(odd)


def test_a_score_of_zero_comes_back(tmp_path: Path) -> None:
    """Its answer was certain."""
    scores, correct = drawn(60, "good model")
    calibrator = st.Calibrator.fit(np.r_[0.0, scores], np.r_[1, correct])
    calibrator.save(tmp_path)
    assert st.Calibrator.load(tmp_path) == calibrator and calibrator.scores[-1] == 0.0


def test_a_failed_save_leaves_the_old_file(saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        threshold = st.Calibrator.load(saved).threshold
        assert threshold is not None
        st.Calibrator.load(saved).save(saved.parent, replace(threshold, alpha=float("nan")))
    assert saved.read_bytes() == before


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no calibrator"):
        st.Calibrator.load(tmp_path)


def test_other_clusters_are_refused(tmp_path: Path) -> None:
    clusters = worked.clusters()
    scored = [st.score_logits(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), clusters, "paper")]
    scores, correct = drawn(50)
    answers = [replace(scored[0], log_confidence=score) for score in scores]
    st.Calibrator.fit(answers, correct, clusters=clusters).save(tmp_path)
    assert st.Calibrator.load(tmp_path, clusters=clusters).n == 50
    known = json.loads((tmp_path / "calibrator.json").read_text())["fingerprint"]["clusters"]
    assert known == hashlib.sha256(np.asarray(worked.LABELS, dtype="<i4").tobytes()).hexdigest()[:16]
    moved = TokenClusters(np.roll(worked.LABELS, 1), worked.vocabulary())
    with pytest.raises(CalibratorMismatchError, match="cluster"):
        st.Calibrator.load(tmp_path, clusters=moved)
    with pytest.raises(CalibratorMismatchError, match=r"preset:paper.*preset:default"):
        other = st.score_logits(worked.logits(*worked.STEPS), worked.ids(*worked.ANSWER), clusters)
        st.Calibrator.load(tmp_path).predict_proba(other)


def test_a_saved_calibrator_needs_neither_scipy_nor_scikit_learn(saved: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('scipy', 'sklearn', 'torch', 'matplotlib'): sys.modules[name] = None\n"
        "import semtoken as st\n"
        f"print(st.Calibrator.load({str(saved.parent)!r}).decide(-0.01).action)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("answer", "abstain")


def test_the_file_is_plain_text_of_plain_values(saved: Path) -> None:
    assert saved.read_bytes() == to_bytes(st.Calibrator.load(saved))
    assert saved.read_bytes().isascii()
    assert [path.name for path in saved.parent.iterdir()] == ["calibrator.json"]
    assert "saved=" not in repr(CalibratorInUse.load(saved.parent))


def test_a_calibrator_is_not_saved_to_an_empty_name_or_a_file(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The empty one was taken for the working directory, where nobody looks for it."""
    calibrator = st.Calibrator.load(saved)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInputError, match=r"'directory' must be a path, got ''\."):
        calibrator.save("")
    with pytest.raises(InvalidInputError, match=r"calibrator\.json is a file; give the name of a directory\."):
        calibrator.save(saved)
    assert sorted(tmp_path.rglob("*")) == before
