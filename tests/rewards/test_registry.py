"""Names of reward models, and classes by their dotted path."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import probes
import pytest

from rewardctl.errors import ConfigError
from rewardctl.rewards import registry
from rewardctl.rewards.abc import PointwiseRewardModel
from rewardctl.rewards.registry import (
    BUILTIN,
    import_class,
    register_reward_model,
    registered_names,
    split_dotted,
    unknown_name,
)


@pytest.fixture
def own_names() -> Iterator[None]:
    """Names registered in a test are forgotten after it."""
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module of its own that can be imported in the test."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, content: str) -> None:
        (tmp_path / f"{name}.py").write_text(content)
        importlib.invalidate_caches()

    return write


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_every_registered_name_leads_to_a_class_of_its_name(name: str) -> None:
    found = import_class(name.upper())
    assert issubclass(found, probes.PointwiseRewardModel | probes.GroupwiseRewardModel)
    assert found.__name__.lower() == name.replace("_", "") + "reward"
    assert found.__module__ == f"rewardctl.rewards.builtin.{name}"


@pytest.mark.parametrize("path", ["probes:Number", "probes.Number"])
def test_a_dotted_path_is_read_in_both_spellings(path: str) -> None:
    assert import_class(path) is probes.Number


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a.b:C", ("a.b", "C")),
        ("a.b.C", ("a.b", "C")),
        ("length", None),
        (":C", None),
        ("a:", None),
        (".C", None),
    ],
)
def test_a_path_is_split_into_module_and_class(path: str, parts: object) -> None:
    assert split_dotted(path) == parts


def test_a_class_may_be_found_where_it_is_imported_again(module: Any) -> None:
    module("again_exported", "from probes import Number as Renamed\n")
    assert import_class("again_exported:Renamed") is probes.Number


def test_a_registered_name_is_known_in_any_case(own_names: None) -> None:
    register_reward_model("My_Reward")(probes.Number)
    assert import_class("my_reward") is probes.Number
    assert import_class("MY_REWARD") is probes.Number
    assert "my_reward" in registered_names()


def test_a_taken_name_is_refused(own_names: None) -> None:
    register_reward_model("mine")(probes.Number)
    register_reward_model("mine")(probes.Number)  # the same class, imported again
    for name in ("mine", "Length"):
        with pytest.raises(
            ConfigError, match=f"reward model name '{name}' is taken; choose another"
        ):
            register_reward_model(name)(probes.OneForAll)


def test_an_unknown_name_gets_a_near_one_and_the_list() -> None:
    with pytest.raises(ConfigError) as refusal:
        import_class("lenght")
    text = str(refusal.value)
    assert text == unknown_name("lenght")
    assert text.startswith("unknown reward_model 'lenght': did you mean 'length'? registered are ")
    assert ", ".join(registered_names()) in text
    assert text.endswith("a class of your own is written package.module:Class")


def test_a_name_like_no_other_gets_the_list_alone() -> None:
    assert unknown_name("zzz").startswith("unknown reward_model 'zzz': registered are group_div")


@pytest.mark.parametrize("path", ["no_such_module:X", "no_such_module.deeper:X"])
def test_a_missing_module_is_named(path: str) -> None:
    with pytest.raises(ConfigError, match=r"no module 'no_such_module' in python_path or the inst"):
        import_class(path)


def test_a_module_that_needs_a_missing_package_names_the_package(module: Any) -> None:
    module("needs_package", "import no_such_package\n")
    with pytest.raises(ConfigError, match="its module needs 'no_such_package', which is not inst"):
        import_class("needs_package:Class")


def test_a_missing_class_is_named() -> None:
    with pytest.raises(ConfigError, match="module 'probes' has no class 'Nowhere'"):
        import_class("probes:Nowhere")


@pytest.mark.parametrize("path", ["probes:CALLS", "probes:ScoreProject", "os.path:join"])
def test_what_is_no_reward_model_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="expected a subclass of PointwiseRewardModel or Groupwi"):
        import_class(path)


def test_a_subclass_of_the_common_base_alone_is_refused(module: Any) -> None:
    module(
        "only_base",
        "from rewardctl.rewards.abc import BaseRewardModel\n"
        "class Odd(BaseRewardModel):\n    def __call__(self, prompt): return [0.0]\n",
    )
    with pytest.raises(ConfigError, match="expected a subclass of PointwiseRewardModel"):
        import_class("only_base:Odd")


def test_names_of_the_public_package_are_the_classes_themselves() -> None:
    import rewardctl.rewards as public

    assert public.PointwiseRewardModel is PointwiseRewardModel
    for name in public.__all__:
        assert getattr(public, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nowhere'"):
        _ = public.Nowhere
