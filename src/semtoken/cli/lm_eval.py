"""`semtoken bench lm-eval`: tasks of lm-evaluation-harness, with the uncertainty beside their accuracy."""

from __future__ import annotations

import json as jsons
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semtoken.cli.calibration_options import CalibratorOption, use_calibrator
from semtoken.cli.console import out, tell, untrusted
from semtoken.cli.model_options import ModelChoice, model_options
from semtoken.cli.options import ForceOption
from semtoken.support.extras import quiet_libraries

if TYPE_CHECKING:
    from semtoken.integrations.lm_eval import TaskFigures


@model_options()
def lm_eval(
    *,
    tasks: Annotated[str, typer.Option(help="Tasks of the harness, separated by commas: 'triviaqa,nq_open'.")],
    choice: ModelChoice,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Ask at most this many questions of each task. Default: all.")
    ] = None,
    num_fewshot: Annotated[
        int | None, typer.Option(min=0, help="Examples before each question. Default: as the task has it.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Ask in the model's chat template.")] = False,
    include_path: Annotated[
        Path | None, typer.Option(help="A folder with tasks of your own (YAML).", exists=True, file_okay=False)
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of prompts answered together.")] = 8,
    calibrator: CalibratorOption = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the harness's results and ours here.", dir_okay=False, writable=True)
    ] = None,
    force: ForceOption = False,
) -> None:
    """Run tasks of lm-evaluation-harness, with AUROC, PRR and calibration of the uncertainty beside their accuracy.

    It wraps the task as it is: its prompts, its stop strings, its metrics. The uncertainty comes from the one
    generation that the task asks for. Install the harness yourself: pip install lm-eval.

    For example:

    - `semtoken bench lm-eval --tasks triviaqa --limit 200`
    - `semtoken bench lm-eval --tasks nq_open --num-fewshot 5 --model Qwen/Qwen2.5-3B --json nq.json`
    """
    from semtoken.files.safe_files import check_writable, finite, replace_text
    from semtoken.integrations.lm_eval import SemtokenLM, evaluate

    if not choice.verbose:
        quiet_libraries()
    if json is not None:
        check_writable(json)
    stc = choice.load(calibrator=calibrator)
    results, figures = evaluate(
        SemtokenLM(stc, batch_size=batch_size),
        [name.strip() for name in tasks.split(",") if name.strip()],
        limit=limit,
        num_fewshot=num_fewshot,
        chat=chat,
        include_path=include_path,
        calibrator=use_calibrator(stc, calibrator, choice.model),
    )
    if json is not None:
        content = {"uncertainty": [asdict(one) for one in figures], "results": results["results"]}
        replace_text(json, jsons.dumps(finite(content), indent=1, ensure_ascii=False, default=str) + "\n")
    _show(results, figures)


def _show(results: dict[str, Any], figures: list[TaskFigures]) -> None:
    if not figures:
        names = ", ".join(results["results"])
        tell(f"No task gave answers with a metric from 0 to 1, so there is nothing to say of the uncertainty: {names}.")
        return
    for one in figures:
        f = one.figures
        metric = one.metric if one.filter == "none" else f"{one.metric} ({one.filter})"
        out.print(untrusted(f"{one.task}: {f['n']:,.0f} answers, {metric} {one.accuracy:.3f}", style="bold"))
        out.print(f"  AUROC (95 %)            {_interval(f, 'auroc')}", soft_wrap=True)
        out.print(f"  PRR (95 %)              {_interval(f, 'prr')}", soft_wrap=True)
        out.print(f"  wrong, the surer half   {f['risk_at_50']:.3f}, all {f['risk_at_100']:.3f}", soft_wrap=True)
        out.print(f"  calibration error       {f['ece']:.3f} of 1 - uncertainty{_of_chance(f)}", soft_wrap=True)


def _of_chance(figures: Mapping[str, float]) -> str:
    return f", {figures['chance_ece']:.3f} of the chance" if "chance_ece" in figures else ""


def _interval(figures: Mapping[str, float], name: str) -> str:
    value, low, high = (figures[f"{name}{end}"] for end in ("", "_low", "_high"))
    return "undefined: all right, or all wrong" if math.isnan(value) else f"{value:.3f} [{low:.3f}, {high:.3f}]"
