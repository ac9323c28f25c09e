import hashlib
import hmac

import torch

from imperfed.algorithms.fedalc.digests import SIZE, digest, digests, numbered, quantised

KEY = b"k" * 32


def test_the_published_vectors():
    assert hmac.digest(KEY, b"pneumonia", "sha256").hex().startswith("1d74780883214850")
    assert digest(KEY, "img", b"\x00\x01").hex().startswith("0e7090864dbd3c36")


def test_without_the_key_trying_all_labels_tells_nothing():
    tag = digest(KEY, "label", b"7")
    guesses = {hashlib.sha256(str(c).encode()).digest() for c in range(1000)}
    assert tag not in guesses
    assert tag not in {digest(b"guess", "label", str(c).encode()) for c in range(1000)}


def test_fields_are_kept_apart():
    assert digest(KEY, "label", b"7") != digest(KEY, "example", b"7")


def test_features_agree_whatever_the_batch_they_were_worked_out_in():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32)).double()
    x = torch.randn(300, 40, dtype=torch.float64)
    with torch.no_grad():
        whole = torch.nn.functional.normalize(net(x))
        single = torch.cat([torch.nn.functional.normalize(net(row[None])) for row in x])
        turned = torch.nn.functional.normalize(net(x.flip(0))).flip(0)
    assert quantised(whole) == quantised(single) == quantised(turned)
    assert len(set(quantised(whole))) == 300


def test_no_sign_of_zero():
    assert quantised(torch.tensor([[0.0, 1e-9]])) == quantised(torch.tensor([[-0.0, -1e-9]]))


def test_equal_digests_get_equal_numbers():
    tags = digests(KEY, "example", [b"a", b"b", b"a", b"c"])
    assert tags.shape == (4, SIZE)
    number = numbered(tags).tolist()
    assert number[0] == number[2]
    assert len(set(number)) == 3
