"""`model.generate` with the uncertainty of every answer. transformers runs this file; see the README.md above."""

from __future__ import annotations

from typing import Any


def generate(
    model: Any,
    semtoken_vocabulary: Any = None,
    semtoken_preset: str = "default",
    logits_processor: Any = None,
    **kwargs: Any,
) -> Any:
    """Generate as `model.generate` does, and score on the way.

    Parameters
    ----------
    model
        Passed by transformers.
    semtoken_vocabulary
        The model's tokenizer, or the name of the model. The preset "paper" needs its clusters: `TokenClusters`, or a
        directory or hub id of some.
    semtoken_preset
        "default" or "paper".
    logits_processor
        As in `model.generate`.
    **kwargs
        Everything else of `model.generate`.

    Returns
    -------
    What `model.generate` returns, with the answers as `ScoredAnswer` in its attribute `semtoken`.
    """
    from semtoken import Recorder
    from semtoken.errors import InvalidInputError

    if semtoken_vocabulary is None:
        raise InvalidInputError("Say which tokens the model has: semtoken_vocabulary=tokenizer.")
    config = kwargs.get("generation_config") or model.generation_config
    ends = kwargs.get("eos_token_id", config.eos_token_id)
    recorder = Recorder(semtoken_vocabulary, semtoken_preset, eos_token_id=ends)
    with recorder.watching(model):  # the model's own logits, whatever penalties are asked for
        output = model.generate(logits_processor=[*(logits_processor or []), recorder], **kwargs)
    results = recorder.answers(output)
    if hasattr(output, "sequences"):
        output["semtoken"] = results
    else:
        output.semtoken = results
    return output
