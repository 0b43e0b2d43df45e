"""Loading a transformers model, with everything that transformers takes and nothing that it does not."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import nullcontext
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
)
from transformers.utils import find_adapter_config_file

from semtoken.errors import InvalidInputError, ModelError, SemtokenError, one_line_of
from semtoken.models.transformers.anatomy import check_model
from semtoken.models.transformers.model import TransformersBackend
from semtoken.support.checkpoints.gguf import load_tokenizer
from semtoken.support.checkpoints.hub import require_on_hub
from semtoken.support.checkpoints.sources import check_folder, is_known
from semtoken.support.checkpoints.strangers import check_size, check_template
from semtoken.support.extras import only_errors, quiet_gguf, require
from semtoken.support.inputs import shown
from semtoken.support.text import did_you_mean

FURTHER_OPTIONS = frozenset(
    {
        *("adapter_kwargs", "adapter_name", "allow_all_kernels", "attn_implementation", "code_revision", "device_map"),
        *("device_mesh", "distributed_config", "experts_implementation", "generation_config", "gguf_file"),
        *("kernel_config", "key_mapping", "max_memory", "offload_buffers", "offload_folder", "proxies"),
        *("quantization_config", "state_dict", "subfolder", "tp_plan", "tp_size", "tqdm_class", "use_kernels"),
        "variant",
    }
)
"""Options that `PreTrainedModel.from_pretrained` takes, but does not name in its signature."""

HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token", "proxies", "subfolder", "gguf_file")
"""Options that say where files are, for tokenizer and configuration too."""


def load_transformers(
    model_or_path: str,
    *,
    device: str | None = None,
    dtype: Any = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    prove: bool = True,
    **options: Any,
) -> TransformersBackend:
    """Load a causal language model and its tokenizer from a directory or the hub, as `ScoredModel.from_pretrained`
    does, whose arguments these are.

    By default the model is put on the first CUDA device if there is one, else the CPU; with a `device_map` it stays
    where transformers puts it. `prove` is for `TransformersBackend`; `options` may also be attributes of the model's
    configuration.

    `InvalidInputError`, before any weights are looked for, for an option that there is not, or a device together
    with a `device_map`; `ModelError` if there is no such model or device, or the model is not one that writes its
    answer token by token behind the prompt, with all its weights.
    """
    if device is not None and options.get("device_map") is not None:
        raise InvalidInputError("Give either device or device_map: the map says where each part of the model goes.")
    target = check_device(device)
    source = {"revision": revision, "trust_remote_code": trust_remote_code}
    files = {name: options[name] for name in HUB_OPTIONS if name in options}
    if not files and not Path(model_or_path).expanduser().exists():  # with options of the hub, transformers asks it
        require_on_hub(model_or_path, revision)
    stranger = not is_known(model_or_path)
    kind, config, base = AutoModelForCausalLM, None, model_or_path
    if not options.get("gguf_file"):
        base = _base_of(model_or_path, revision, files)
        if base != model_or_path and Path(base).is_dir():
            check_folder(Path(base))
        config = _config(base, model_or_path, source if base == model_or_path else source | {"revision": None}, files)
        kind = _class_for(model_or_path, config)
        if stranger and Path(base).is_dir():
            _check_described(Path(base), kind, config)
    known = _known_options()
    if unknown := options.keys() - known:
        described = config or _config(model_or_path, model_or_path, source, files)
        _check_attributes(unknown, described, known)
    try:
        if gguf_file := options.get("gguf_file"):
            for package in ("gguf", "accelerate"):
                require(package, extra="gguf")
            tokenizer = load_tokenizer(Path(model_or_path) / gguf_file)
        else:
            tokenizer = AutoTokenizer.from_pretrained(model_or_path, **source, **files)
        if stranger:
            check_template(model_or_path, tokenizer.chat_template)
        with quiet_gguf() if gguf_file else nullcontext(), only_errors("transformers"):  # `_check_whole` says it
            of_base = source if base == model_or_path else source | {"revision": None}
            model, loaded = kind.from_pretrained(base, dtype=dtype, output_loading_info=True, **of_base, **options)
    except SemtokenError:
        raise
    except Exception as error:  # of a damaged file, transformers, tokenizers and torch raise anything
        if config is not None and "Unrecognized configuration class" in str(error):  # 200 names follow
            raise _no_class(model_or_path, config) from error
        raise _not_loaded(model_or_path, error) from error
    _check_whole(base, model, loaded)
    if base != model_or_path:
        model = _adapted(model, model_or_path, revision)
    if "device_map" not in options and getattr(model, "hf_device_map", None) is None:
        model = model.to(target)
    processor, without = None, ""
    if kind is AutoModelForImageTextToText:
        processor, without = _processor(model_or_path, source | files)
    if processor is not None:
        tokenizer = processor.tokenizer
        tokenizer.chat_template = tokenizer.chat_template or processor.chat_template
        if stranger:
            check_template(model_or_path, tokenizer.chat_template)
    return TransformersBackend(model.eval(), tokenizer, prove=prove, processor=processor, without_images=without)


def _processor(model_or_path: str, source: dict[str, Any]) -> tuple[Any, str]:
    """The processor of an image-text model, or None and why there is none: the model reads texts then."""
    try:
        processor = AutoProcessor.from_pretrained(model_or_path, **source)
    except Exception as error:  # of a missing package or a damaged file, transformers raises anything
        return None, f"its processor cannot be loaded: {one_line_of(error)}"
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        return None, "its files hold no processor of images"
    return processor, ""


SMALL = 20_000_000
"""The parameters of a model up to which it is computed by one thread."""


def spare_threads(model: PreTrainedModel) -> None:
    """Have torch compute a small model on the CPU by one thread, unless OMP_NUM_THREADS says by how many.

    Its matrix products are too short to be shared. On an idle machine two threads are no faster than one, and where
    something else keeps a processor busy they wait for each other: a file took four to seven times as long. The setting
    holds for all of torch in this process, so it is for programs that have the process to themselves.
    """
    if model.device.type == "cpu" and model.num_parameters() <= SMALL and not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(1)


def check_device(device: str | None) -> torch.device:
    """The device of that name, by default the first CUDA device or else the CPU; `ModelError` if it cannot be used."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise ModelError(
            f"The model cannot be loaded on {shown(device)}: torch can put nothing there. It sees "
            f"{torch.cuda.device_count()} CUDA devices here, and 'cpu' is always there."
        ) from error


def _known_options() -> set[str]:
    """The names of the options that transformers takes for any model."""
    named = signature(PreTrainedModel.from_pretrained).parameters.values()
    kinds = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return {one.name for one in named if one.kind in kinds} - {"pretrained_model_name_or_path"} | FURTHER_OPTIONS


def _check_attributes(options: set[str], config: Any, known: set[str]) -> None:
    """Raise `InvalidInputError` unless all these options are attributes of a model's configuration."""
    for name in sorted(options):
        if not hasattr(config, name):
            raise InvalidInputError(
                f"{name!r} is no option of ScoredModel, of transformers' from_pretrained or of the model"
                f"{did_you_mean(name, known)}."
            )


def _base_of(model_or_path: str, revision: str | None, files: dict[str, Any]) -> str:
    """The model that an adapter is for, where there is one at this place; the place itself where there is none."""
    where = {name: value for name, value in files.items() if name not in ("proxies", "gguf_file")}
    try:
        found = find_adapter_config_file(model_or_path, revision=revision, **where)
        adapted = json.loads(Path(found).read_text(encoding="utf-8")) if found else None
        base = model_or_path if adapted is None else str(adapted["base_model_name_or_path"])
    except Exception as error:  # of a damaged file, anything
        raise _not_loaded(model_or_path, error) from error
    if adapted is not None and adapted.get("peft_type") in ("PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING"):
        raise ModelError(
            f"The model {model_or_path!r} is a tuned prompt, which transformers does not load. Load it with "
            "peft's AutoPeftModelForCausalLM, and give STC the model and its tokenizer."
        )
    return base


def _adapted(base: Any, model_or_path: str, revision: str | None) -> Any:
    """A model with the adapter of a place; `ModelError` unless its files hold all weights of the adapter, no others."""
    require("peft", extra="adapters")
    from peft import PeftModel

    try:
        with only_errors("transformers"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of keys that are missing, which are looked at below
            model = PeftModel.from_pretrained(base, model_or_path, revision=revision)
            loaded = model.load_adapter(model_or_path, "default", revision=revision)
    except Exception as error:  # of a damaged file, peft and torch raise anything
        raise _not_loaded(model_or_path, error) from error
    wrong = {"lack": set(loaded.missing_keys), "hold besides": set(loaded.unexpected_keys)}
    faults = [f"{what} {_names(keys)}" for what, keys in wrong.items() if keys]
    if faults:
        raise ModelError(f"{model_or_path} is not a whole adapter: its weights {' and '.join(faults)}.")
    return model


def _not_loaded(model_or_path: str, error: Exception) -> ModelError:
    return ModelError(f"The model {model_or_path!r} cannot be loaded: {one_line_of(error)}")


def _config(base: str, model_or_path: str, source: dict[str, Any], files: dict[str, Any]) -> Any:
    """The configuration of a model; that of the model below where there is an adapter at this place."""
    try:
        return AutoConfig.from_pretrained(base, **source, **files)
    except Exception as error:  # of a damaged file, transformers raises anything
        raise _not_loaded(model_or_path, error) from error


def _check_described(folder: Path, kind: Any, config: Any) -> None:
    """Raise `ModelError` if the model that the configuration describes is many times larger than its files.
    It is built without memory for its weights.
    """
    try:
        with torch.device("meta"), only_errors("transformers"):
            described = kind.from_config(config, trust_remote_code=False)
    except Exception:  # of a damaged file, transformers raises anything; it does so when it loads the model
        return
    tensors = [*described.parameters(), *described.buffers()]
    check_size(folder, sum(tensor.numel() for tensor in tensors))


def _class_for(model_or_path: str, config: Any) -> Any:
    """The class of transformers that loads a model with this configuration; `ModelError` if it is of another kind."""
    where = f"The model {model_or_path!r} cannot be loaded"
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{where}: it is an encoder-decoder ({config.model_type}), and semtoken scores decoder-only models, whose "
            "answer follows the prompt in one sequence."
        )
    if config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return AutoModelForImageTextToText
    if config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or "AutoModelForCausalLM" in (
        getattr(config, "auto_map", None) or {}
    ):
        return AutoModelForCausalLM
    raise _no_class(model_or_path, config)


def _no_class(model_or_path: str, config: Any) -> ModelError:
    return ModelError(
        f"The model {model_or_path!r} cannot be loaded: transformers {transformers.__version__} has no class that "
        f"generates text for models of the type {config.model_type!r}."
    )


def _check_whole(model_or_path: str, model: Any, loaded: dict[str, Any]) -> None:
    """Raise `ModelError` unless the files held all weights of the model and no others: transformers makes up those
    that are missing at random.
    """
    check_model(model)
    head = model.get_output_embeddings()
    own = {name for name, weight in model.named_parameters(remove_duplicate=False) if weight is head.weight}
    missing = set(loaded["missing_keys"])
    if own and own <= missing:
        raise ModelError(
            f"{model_or_path} has no output head: its weights hold no {', '.join(sorted(own))}. "
            "Use the checkpoint that generates text."
        )
    wrong = {
        "lack": missing,
        "hold in another shape": {str(key[0] if isinstance(key, tuple) else key) for key in loaded["mismatched_keys"]},
        "hold besides": set(loaded["unexpected_keys"]),
    }
    faults = [f"{what} {_names(keys)}" for what, keys in wrong.items() if keys]
    if faults or loaded.get("error_msgs"):
        raise ModelError(
            f"{model_or_path} is not a whole {type(model).__name__}: its weights {' and '.join(faults)}"
            f"{'; '.join(map(str, loaded.get('error_msgs') or ()))}. Its answers would come from another model than "
            "the one that was trained."
        )


def _names(keys: set[str]) -> str:
    listed = sorted(keys)
    more = f" and {len(listed) - 3:,} more" if len(listed) > 3 else ""
    return f"{', '.join(listed[:3])}{more}"
