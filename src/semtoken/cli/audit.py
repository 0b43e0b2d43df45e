"""`semtoken audit`: does the guarantee of a calibrator still hold, for newer labels or behind another server?"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from semtoken.cli.console import json_line, print_json, say, tell
from semtoken.cli.journals import is_journal, open_journal
from semtoken.cli.loading import by_kind
from semtoken.cli.parameters import BaseUrl, Json, Labels, NameThere, Questions, ToLines
from semtoken.cli.server import NamedServer, named_server
from semtoken.cli.settings import AuditSection, Read, SettingsInUse, path_of
from semtoken.cli.statuses import Status, UsageError, refuse_useless, verdict
from semtoken.errors import BackendError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from semtoken.decisions.asking_again import AskedAgain
    from semtoken.decisions.calibrating import DecisionCalibrator

STYLES = {"kept": "bold green", "unknown": "bold", "broken": "bold red", "no_guarantee": "bold"}


def audit(
    source: str | None = None,
    /,
    *,
    calibrator: Annotated[Path | None, Parameter(metavar="DIR")] = None,
    base_url: BaseUrl = None,
    model: NameThere = None,
    labels: Labels = None,
    questions: Questions = None,
    rewordings: Path | None = None,
    output: ToLines[Path | None] = None,
    as_json: Json = False,
    in_use: Read[SettingsInUse],
) -> int:
    """Test whether a guarantee still holds.

    A journal names its calibrator, and you may look at it as often as you like; of other sources, look once. Exit
    status: 0 holds or too few labels to tell, 1 does not hold or exceeds a limit of [audit], 2 error, 3 nothing was
    measured (no labels, no guarantee, unknown questions).

    Example: `semtoken audit labeled.jsonl --calibrator my-calibrator`

    Parameters
    ----------
    source
        Newer labeled answers, a file of scores, saved replies, or a journal. Default: labeled under
        [decisions].
    calibrator
        The calibrator to test.
    rewordings
        The same questions in other words, to see whether wording matters.
    output
        Keep the server's answers, so that a stopped audit can continue.
    """
    settings = in_use.settings
    source = source or settings.decisions.labeled
    if not source:
        raise UsageError("Name what to audit: newer labeled answers, replies or a journal.")
    of_server = {"--base-url": base_url, "--model": model, "--rewordings": rewordings, "--output": output}
    of_decisions = {**of_server, "--labels": labels, "--questions": questions}
    if is_journal(source):
        with_journal = f"with {source}, a journal, which knows its calibrator"
        refuse_useless({**of_decisions, "--calibrator": calibrator}, with_journal)
        return _audit_journal(source, settings.audit, in_use, as_json=as_json)
    default = settings.calibration.decisions
    if calibrator is None and not default:
        if not Path(source).exists():
            raise UsageError(f"There is no file, folder or journal {source}.")
        raise UsageError("Name the calibrator to test: --calibrator DIR.")
    of_answers, for_decisions = by_kind([calibrator] if calibrator is not None else [], default)
    if of_answers is not None:
        refuse_useless(of_decisions, f"with {of_answers}, which is a calibrator of answers")
        return _audit_answers(of_answers, Path(source), settings.audit, as_json=as_json)
    assert for_decisions is not None
    from semtoken.decisions.asking_again import AskedAgain
    from semtoken.decisions.calibrating import DecisionCalibrator
    from semtoken.decisions.running import are_items
    from semtoken.decisions.saved import decision_records

    fitted = DecisionCalibrator.load(for_decisions)
    server = None
    if base_url is not None or are_items(Path(source)):
        server = named_server(base_url, model, in_use, variable=True)
    if server is None:
        refuse_useless(of_server, "with answers that are there, without --base-url")
        usual = path_of(settings.decisions.questions)
        again = AskedAgain(decision_records(Path(source), labels=labels, questions=questions, usual=usual), {})
    else:
        refuse_useless({"--labels": labels, "--questions": questions}, "with items that are put to a server")
        again = _asked_again(fitted, for_decisions, Path(source), server, rewordings, output, in_use)
    return _audit_decisions(fitted, again, in_use, as_json=as_json)


def _audit_journal(source: str, section: AuditSection, in_use: SettingsInUse, *, as_json: bool) -> int:
    """The labels of the random sample, by a test that may be looked at every day, and how far the scores have moved."""
    journal = open_journal(source)
    from semtoken.guarantees.journal.labels import agreement
    from semtoken.guarantees.journal.watch import watch

    report = watch(journal, level=section.level)
    if in_use.settings.telemetry.enabled:
        from semtoken.integrations.opentelemetry import send_state

        send_state(report)
    limits = section.limits
    status = verdict(holds=report.holds(limits), measured=report.is_measured(limits))
    if as_json:
        _print_json(report.to_dict(), status)
    else:
        _say(report.sentence, STYLES[report.state], [*report.remarks(), agreement(journal).sentence])
    return status


def _audit_answers(directory: Path, source: Path, section: AuditSection, *, as_json: bool) -> int:
    """The guarantee, by the labels of a file, and how far its scores are from those of the fit."""
    from semtoken.guarantees import Calibrator
    from semtoken.guarantees.answer_records import read_answers, require_scores
    from semtoken.guarantees.auditing import audit_answers

    calibrator = Calibrator.load(directory)
    answers = read_answers(source)
    require_scores(answers)
    found = audit_answers(calibrator, answers, section.level)
    status = verdict(holds=found.holds(section.limits), measured=found.is_measured)
    if as_json:
        _print_json(found.to_dict(), status)
    else:
        _say(found.answer, "bold", [*found.remarks(), *found.exceeded(section.limits)])
    return status


def _print_json(found: Mapping[str, Any], status: Status) -> None:
    flags = {"holds": status != Status.DOES_NOT_HOLD, "measured": status != Status.NOTHING_MEASURED}
    print_json({**found, **flags})


def _say(answer: str, style: str, remarks: Iterable[str]) -> None:
    """The answer to the question whether the guarantee holds, and what is to be said besides."""
    for text, one_style in [(answer, style), *((remark, "") for remark in remarks)]:
        if text:
            say(text, one_style)


def _asked_again(
    fitted: DecisionCalibrator,
    folder: Path,
    items: Path,
    server: NamedServer,
    rewordings: Path | None,
    output: Path | None,
    in_use: SettingsInUse,
) -> AskedAgain:
    """The answers of a server to the labeled items, as the calibrator of a folder had them asked, and in other ways."""
    from semtoken.decisions.asking_again import ask_again, kept_until_asked
    from semtoken.decisions.question_files import read_questions

    server.announce("the labeled items", in_use)
    ask, most = server.ask(), in_use.settings.audit.variants
    reworded = None if rewordings is None else read_questions(rewordings)
    with nullcontext(output) if output else kept_until_asked(items, folder, server.url, server.model) as target:
        try:
            return ask_again(fitted, items, ask, target, reworded=reworded, most=most, answered_by=server.name)
        except (BackendError, InvalidInputError, KeyboardInterrupt):
            if output is None and target.exists():
                tell(f"The answers so far are in {target}: the same command goes on from there.", style="yellow")
            raise


def _audit_decisions(fitted: DecisionCalibrator, again: AskedAgain, in_use: SettingsInUse, *, as_json: bool) -> int:
    """A verdict for each question, and what other ways of asking changed."""
    from semtoken.decisions.audit_report import lines, plain_values
    from semtoken.decisions.auditing import audit as audited

    settings, required = in_use.settings.audit, in_use.settings.decisions.require
    found = audited(fitted, again.records, level=settings.level, required=required)
    changes = again.changes(fitted)
    broken = found.exceeded(settings.limits, required)
    for line in plain_values(found, broken, changes) if as_json else lines(found, broken, changes):
        print(json_line(line) if as_json else line)
    return verdict(holds=not found.is_broken and not any(broken.values()), measured=not found.gaps)
