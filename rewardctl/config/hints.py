"""What somebody who wrote an unknown name meant: near names, and names that other tools use."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from rewardctl.errors import quote

MAX_KNOWN = 64  # comparing with more names takes longer than a check may
_NEAR = 0.7

# Keys of TRL, LLaMA-Factory, axolotl, Flow-Factory and others, and what they are called here. The
# first name that the mapping at hand knows is meant.
FOREIGN: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr",),
    "num_train_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "n_epochs": ("epochs",),
    "num_train_steps": ("max_steps",),
    "total_steps": ("max_steps",),
    "per_device_train_batch_size": ("batch_size",),
    "per_device_eval_batch_size": ("batch_size",),
    "per_device_batch_size": ("batch_size",),
    "micro_batch_size": ("batch_size",),
    "train_batch_size": ("batch_size",),
    "eval_batch_size": ("batch_size",),
    "bs": ("batch_size",),
    "gradient_accumulation_steps": ("micro_batch_tokens",),
    "max_length": ("seq_length",),
    "max_seq_length": ("seq_length",),
    "max_seq_len": ("seq_length",),
    "cutoff_len": ("seq_length",),
    "sequence_len": ("seq_length",),
    "max_grad_norm": ("grad_clip",),
    "gradient_clipping": ("grad_clip",),
    "lr_scheduler_type": ("schedule",),
    "lr_scheduler": ("schedule",),
    "scheduler": ("schedule",),
    "warmup_steps": ("warmup_ratio",),
    "warmup": ("warmup_ratio",),
    "logging_steps": ("log_every",),
    "eval_steps": ("eval_every",),
    "save_steps": ("save_every",),
    "save_total_limit": ("keep_last",),
    "save_freq": ("save_every",),
    "bf16": ("mixed_precision", "dtype"),
    "fp16": ("mixed_precision", "dtype"),
    "precision": ("mixed_precision", "dtype"),
    "torch_dtype": ("dtype", "mixed_precision"),
    "loss_type": ("loss",),
    "rl_loss": ("loss",),
    "center_rewards_coefficient": ("center_coefficient",),
    "wandb_project": ("report_to",),
    "val_set_size": ("validation",),
    "eval_dataset": ("validation", "data"),
    "validation_split_percentage": ("validation",),
    "train_dataset": ("data",),
    "dataset": ("data", "datasets", "applicable_datasets"),
    "dataset_name": ("data", "name"),
    "dataset_path": ("path", "data"),
    "data_path": ("path", "data"),
    "train_file": ("data",),
    "file": ("path",),
    "files": ("path", "datasets"),
    "save_path": ("output_dir",),
    "output_path": ("output_dir",),
    "save_dir": ("output_dir",),
    "truncation": ("overlong",),
    "truncation_side": ("overlong",),
    "random_seed": ("seed",),
    "ema": ("ema_decay",),
    "early_stopping_patience": ("early_stopping",),
    "model_name_or_path": ("model_path", "init_from"),
    "pretrained_model_name_or_path": ("model_path", "init_from"),
    "pretrained": ("model_path", "init_from"),
    "base_model": ("model_path", "init_from"),
    "resume_from_checkpoint": ("init_from",),
    "checkpoint": ("model_path", "init_from"),
    "model_type": ("size",),
    "model_size": ("size",),
    "n_layer": ("depth",),
    "num_layers": ("depth",),
    "num_hidden_layers": ("depth",),
    "n_head": ("num_heads",),
    "num_attention_heads": ("num_heads",),
    "d_model": ("hidden_size",),
    "n_embd": ("hidden_size",),
    "hidden_dim": ("hidden_size",),
    "channels": ("in_channels",),
    "latent_channels": ("in_channels",),
    "dropout_rate": ("dropout",),
    "reward_model_type": ("reward_model",),
    "reward_type": ("reward_model",),
    "reward_fn": ("reward_model",),
    "reward_func": ("reward_model",),
    "model": ("reward_model",),
    "class": ("reward_model",),
    "class_name": ("reward_model",),
    "_target_": ("reward_model",),
    "type": ("reward_model",),
    "reward_name": ("name",),
    "id": ("name",),
    "reward_weight": ("weight",),
    "reward_weights": ("weight",),
    "weights": ("weight",),
    "coefficient": ("weight",),
    "scale": ("weight",),
    "datasets": ("applicable_datasets",),
    "tasks": ("applicable_datasets",),
    "applies_to": ("applicable_datasets",),
    "kwargs": ("options",),
    "extra_kwargs": ("options",),
    "params": ("options",),
    "args": ("options",),
    "reward_kwargs": ("options",),
    "workers": ("num_workers",),
    "n_workers": ("num_workers",),
    "async": ("async_reward",),
    "is_async": ("async_reward",),
    "reward": ("rewards",),
    "reward_models": ("rewards",),
    "reward_funcs": ("rewards",),
    "reward_functions": ("rewards",),
    "streams": ("rewards",),
    "training": ("train",),
    "evaluation": ("eval",),
    "val": ("eval", "validation"),
    "scoring": ("score",),
    "pythonpath": ("python_path",),
    "sys_path": ("python_path",),
    "column_mapping": ("columns",),
    "rename_columns": ("columns",),
    "split_ratio": ("split",),
    "fps": ("video_fps",),
    "num_frames": ("max_frames",),
    "aggregation": ("aggregate",),
    "advantage_aggregation": ("aggregate",),
}


def did_you_mean(name: str, known: Collection[str]) -> str | None:
    """The known name nearest to `name`; None if none is near."""
    if len(known) > MAX_KNOWN or len(name) > MAX_KNOWN:
        return None
    plain = name.lower().replace("-", "_")
    lower = {each.lower(): each for each in known}
    near = [each for each in lower if set(plain) & set(each) and _is_one_edit(plain, each)]
    near = near or get_close_matches(plain, lower, n=1, cutoff=_NEAR)
    return lower[near[0]] if near else None


def _is_one_edit(one: str, other: str) -> bool:
    """Whether one letter added, dropped, changed or swapped with the next is all that differs."""
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return (len(one) <= 1 and len(other) <= 1) or (len(one) == 2 and one == other[::-1])


def meant_key(key: str, known: Collection[str]) -> str | None:
    """The key of this mapping that `key` stands for, by the table of other tools or by nearness."""
    plain = key.lower().replace("-", "_")
    for target in FOREIGN.get(plain, ()):
        if target in known:
            return target
    return did_you_mean(key, known)


def key_hint(key: str, known: Collection[str], others: Mapping[str, Collection[str]]) -> str:
    """The next step for an unknown key.

    Args:
        known: Keys of the mapping that it stands in.
        others: Keys of other mappings, by the name of each: the key may belong there.
    """
    meant = meant_key(key, known)
    if meant is not None:
        return f"did you mean {meant!r}?"
    for place, keys in others.items():
        if key in keys:
            return f"{key!r} belongs under {place}:"
    for place, keys in others.items():
        for target in FOREIGN.get(key, ()):
            if target in keys:
                return f"did you mean {target!r} under {place}:?"
    return "known are " + shortened(known)


def shortened(names: Collection[str], *, limit: int = 20) -> str:
    """Names for a message, comma-separated, the rest counted."""
    listed = list(names)
    text = ", ".join(name if name.isidentifier() else quote(name) for name in listed[:limit])
    rest = len(listed) - limit
    return (text or "none") + (f" and {rest} more" if rest > 0 else "")
