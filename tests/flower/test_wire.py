"""What travels, what is refused, and which Flower carries it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, Message

from imperfed.core.errors import UsageError
from imperfed.flower.messages.payload import Payload, RefusedError, pack, scores_of, scores_words, size, unpack
from imperfed.flower.processes import adapter, versions

TREE = {
    "float": torch.tensor([0.1, -2.5, float("inf")]),
    "double": torch.tensor([[1 / 3]], dtype=torch.float64),
    "half": torch.tensor([0.5], dtype=torch.float16),
    "int": torch.tensor([-(2**62), 7]),
    "bool": torch.tensor([[True, False]]),
    "one": torch.tensor(3),
    "none": torch.empty(0, 4),
}


def sent(payload: Payload) -> Payload:
    adapter.identify(run=1, node=1)
    return unpack(adapter.delivered(Message(pack(payload), 5, "query.hello"), "7").content)


def test_a_letter_arrives_as_it_was() -> None:
    words = {"text": "é", "number": 7, "real": 1 / 3, "list": [0.1, 0.2], "names": ["a", "b"], "empty": []}
    there = sent(Payload(words, {"up": TREE, "nothing": {}}))
    assert there.words == words
    assert there.trees.keys() == {"up", "nothing"}
    for name, t in TREE.items():
        assert there.trees["up"][name].dtype == t.dtype
        assert torch.equal(there.trees["up"][name], t)


def test_what_cannot_travel_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match=r"'w' holds torch.bfloat16, which cannot travel; send it as torch.float32"):
        pack(Payload({}, {"up": {"w": torch.zeros(2, dtype=torch.bfloat16)}}))


def test_a_message_has_a_number_at_the_other_end() -> None:
    adapter.identify(run=1, node=1)
    assert adapter.delivered(Message(pack(Payload()), 5, "train"), "number 7").metadata.message_id == "number 7"


@pytest.mark.parametrize("keep", [0, 10, 16, 51])
def test_broken_bytes_are_refused(keep: int) -> None:
    records = pack(Payload({}, {"up": {"w": torch.arange(9.0)}}))
    record = records["up"]
    assert isinstance(record, ArrayRecord)
    record["w"].data = record["w"].data[:keep]
    with pytest.raises(RefusedError, match="'up/w' cannot be read"):
        unpack(records)


def test_an_array_that_is_not_what_it_says_is_refused() -> None:
    records = pack(Payload({}, {"up": {"w": torch.arange(9.0)}}))
    records["up"]["w"].shape = (8,)  # type: ignore[index]
    with pytest.raises(RefusedError, match=r"declared float32 \(8,\), holds 36 bytes"):
        unpack(records)


def test_words_are_of_the_type_that_is_asked_for() -> None:
    payload = Payload({"round": "one", "loss": float("nan")})
    with pytest.raises(RefusedError, match="'round' should be of type int, found 'one'"):
        payload.number("round")
    with pytest.raises(RefusedError, match="'run' should be of type str, found None"):
        payload.text("run")
    assert payload.real("loss") != payload.real("loss")


def test_figures_travel_with_their_counts() -> None:
    scores = {"accuracy": (0.25, 40), "auroc": (float("nan"), 40), "fair/tpr/rest/true": (float("nan"), 0)}
    assert str(scores_of(sent(Payload(scores_words(scores))), tests=40, known=[tuple(scores)])) == str(scores)
    for values, counts in (([0.5], [1, 2]), ([0.5, 0.6], [1.0, 2.0]), (["high", "low"], [1, 2])):
        words: dict[str, Any] = {"metrics": ["a", "b"], "values": values, "counts": counts}
        with pytest.raises(RefusedError, match="a name, a value and a count each"):
            scores_of(Payload(words), tests=40, known=[("a", "b")])


def test_bytes_grow_with_what_is_sent() -> None:
    few, more = (size(pack(Payload({}, {"up": {"w": torch.zeros(n)}}))) for n in (100, 1100))
    assert more - few == 4 * 1000


def test_a_letter_tells_names_shapes_and_types() -> None:
    told = Payload({"loss": 0.5}, {"up": {"w": torch.zeros(3, 2), "n": torch.tensor(1)}}).parts()
    assert told == ["up/w [3, 2] float32", "up/n [] int64", "loss"]


@pytest.mark.parametrize(
    ("version", "known"),
    [("1.41.0", True), ("1.42.3", True), ("1.41", True), ("1.40.9", False), ("1.43.0", False), ("2.41.0", False)],
)
def test_versions_of_flower(version: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert versions.supported(version) == known
    monkeypatch.setattr(versions.metadata, "version", lambda name: version)
    if known:
        versions.check_version()
    else:
        with pytest.raises(UsageError, match=rf"real sites need flwr >= 1.41, < 1.43 .*; flwr {version} is installed"):
            versions.check_version()


def test_without_flower_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise versions.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions.metadata, "version", missing)
    with pytest.raises(UsageError, match=r"pip install 'imperfed\[flower\]'\); it is not installed"):
        versions.check_version()


def test_what_flower_does_not_promise_to_keep_is_where_it_was() -> None:
    for name in adapter.NAMES:
        assert getattr(adapter, name) is not None


def test_no_other_module_knows_where_flower_keeps_it() -> None:
    promised = ("flwr.app", "flwr.clientapp", "flwr.serverapp")
    for path in Path(adapter.__file__).parents[1].rglob("*.py"):
        named = re.findall(r"(?:from|import) (flwr[.\w]*)|\"(flwr[.\w]+)\"", path.read_text())
        assert path.name == "adapter.py" or all((a or b) in promised for a, b in named), path.name
