"""`semtoken mcp`: tools for agents over the Model Context Protocol."""

from __future__ import annotations

from semtoken.cli.calibration_options import CalibratorOption, applied_to
from semtoken.cli.model_options import ModelChoice, model_options
from semtoken.support.extras import quiet_libraries


@model_options()
def mcp(*, choice: ModelChoice, calibrator: CalibratorOption = None) -> None:
    """Offer `ask`, `score` and `check` to agents, over stdin and stdout (Model Context Protocol).

    An agent that may call them can find out how sure a model is before it acts. Name this command in the agent's
    configuration; it opens no port. Install the protocol yourself: pip install mcp.

    For example:

    - `semtoken mcp --model Qwen/Qwen2.5-3B-Instruct`
    """
    from semtoken.integrations.mcp import server

    if not choice.verbose:
        quiet_libraries()
    stc = choice.load()
    server(stc, choice.model, applied_to(stc, calibrator, choice.model)).run("stdio")
