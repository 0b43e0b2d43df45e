"""The recipe for MLflow, as it stands on the page, with a store of its own in SQLite."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pytest

from tests.integrations.recipes import confidence, run


def test_the_trace_has_the_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # MLflow puts a folder of artifacts where it runs
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    mlflow.set_experiment("semtoken")
    with mlflow.start_span("answer"):
        pass
    run("log_feedback")
    trace = mlflow.get_trace(mlflow.get_last_active_trace_id())
    [found] = [one for one in trace.info.assessments if one.name == "semtoken.confidence"]
    assert found.feedback.value == pytest.approx(confidence())
    assert (found.source.source_type, found.source.source_id) == ("CODE", "semtoken")
