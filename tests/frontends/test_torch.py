"""Schemes inside PyTorch modules."""

import numpy as np
import pytest

import tilework as tw
from tilework.primitives.errors import ArgumentError, Unsupported


@pytest.fixture
def torch(peer):
    return peer("torch")


def network(torch):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 24), torch.nn.ReLU(), torch.nn.Linear(24, 4))


def test_linears_become_packed_ones_with_the_products_of_their_codes(torch):
    model = network(torch)
    weights = [model[n].weight.detach().numpy().copy() for n in (0, 2)]
    x = torch.randn(5, 32)
    assert tw.torch.quantize_(model, {"0": "int4_g32", "2": tw.schemes.get("int8_channel")}) is model
    with torch.no_grad():
        y = model(x)
    schemes = [tw.schemes.get(n) for n in ("int4_g32", "int8_channel")]
    hidden = np.maximum(schemes[0].quantize(weights[0]).matmul(x.numpy()) + model[0].bias.numpy(), 0)
    wanted = schemes[1].quantize(weights[1]).matmul(hidden) + model[2].bias.numpy()
    np.testing.assert_array_equal(y.numpy(), wanted)
    assert "int4_g32" in repr(model)
    with pytest.raises(Unsupported, match=r"train=True"):
        model(x.requires_grad_())


def test_fake_quantization_passes_gradients_straight_through(torch):
    x = torch.randn(3, 32, requires_grad=True)
    y = tw.torch.fake_quantize(x, "int4_g32")
    np.testing.assert_array_equal(y.detach().numpy(), tw.schemes.get("int4_g32").fake_quantize(x.detach().numpy()))
    (y * torch.arange(32.0)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.broadcast_to(np.arange(32, dtype=np.float32), (3, 32)))
    half = torch.randn(2, 32, dtype=torch.bfloat16)
    assert tw.torch.fake_quantize(half, "nf4").dtype == torch.bfloat16
    clipped = torch.tensor([[500.0, 1.0]], requires_grad=True)
    tw.torch.fake_quantize(clipped, "fp8_e4m3", clip=True).sum().backward()
    assert clipped.grad.tolist() == [[0.0, 1.0]]


def test_training_in_a_scheme_lowers_the_loss_and_packs_to_the_same_outputs(torch):
    model = network(torch)
    x, target = torch.randn(64, 32), torch.randn(64, 4)
    tw.torch.quantize_(model, "int2_g32", train=True)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(25):
        loss = (model(x) - target).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    with torch.no_grad():
        before = model(x)
        after = tw.torch.quantize_(model, "int2_g32")(x)
    np.testing.assert_allclose(after.numpy(), before.numpy(), atol=1e-5)


def test_what_cannot_be_swapped_is_named(torch):
    with pytest.raises(ArgumentError, match=r"nothing was swapped"):
        tw.torch.quantize_(torch.nn.ReLU(), "int4_g32")
    with pytest.raises(ArgumentError, match=r"goes with train=True"):
        tw.torch.quantize_(network(torch), "int4_g32", activations="int8_channel")
    only = tw.torch.quantize_(network(torch), "int4_g32", which=lambda name, module: name == "2")
    assert type(only[0]) is torch.nn.Linear
    assert type(tw.torch.quantize_(torch.nn.Linear(32, 4), "int4_g32")).__name__ == "QuantizedLinear"
    with pytest.raises(AttributeError, match=r"has no 'nothing'; it has FakeQuantizedLinear"):
        tw.torch.nothing  # noqa: B018


@pytest.mark.parametrize("scheme", ["int4_g32", "nf4_double", "q4_0"])
def test_packed_linears_are_saved_loaded_copied_and_pickled(torch, scheme):
    import copy
    import io
    import pickle

    model, other = network(torch), network(torch)
    with torch.no_grad():
        other[0].weight.mul_(-2.0)
    for one in (model, other):
        tw.torch.quantize_(one, scheme, which=lambda name, module: name == "0")
    x = torch.randn(5, 32)
    with torch.no_grad():
        wanted = model(x)
        assert not torch.equal(other(x), wanted)
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert torch.equal(copied(x), wanted)
            copied[0].packed_codes.zero_()
            assert not torch.equal(copied(x), wanted)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        assert torch.equal(other(x), wanted)
        assert torch.equal(model.half().float()[0](x), copy.deepcopy(model)[0](x))
    third = tw.torch.quantize_(network(torch), "int8_channel", which=lambda name, module: name == "0")
    with pytest.raises((ArgumentError, RuntimeError), match=r"int8_channel|packed"):
        third.load_state_dict(model.state_dict())
