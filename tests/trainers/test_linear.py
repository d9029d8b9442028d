from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from openclaw_rl.trainers.linear import Frozen, FrozenLoraTerm, Lora
from openclaw_rl.weights.forms import PackedLinear, pack


def layer(*, bias: bool) -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(24, 40, bias=bias)


def held(linear: nn.Linear, packed: bool) -> nn.Linear | PackedLinear:
    return PackedLinear(pack(linear.weight), linear.bias) if packed else linear


def plain(linear: nn.Linear, a: Tensor, b: Tensor, x: Tensor, scale: float) -> Tensor:
    """The formula, by autograd alone."""
    return linear(x) + scale * (x @ a.t() @ b.t())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_output_and_every_gradient_are_those_of_the_formula(bias: bool, packed: bool) -> None:
    linear = layer(bias=bias).requires_grad_(False)
    lora = Lora(held(linear, packed), rank=5, scale=1.75)
    with torch.no_grad():
        lora.a.normal_()
        lora.b.normal_()
    a, b = lora.a.detach().clone().requires_grad_(), lora.b.detach().clone().requires_grad_()
    x = torch.randn(2, 7, 24, requires_grad=True)
    weight = torch.randn(2, 7, 40)
    ours = torch.autograd.grad((lora(x) * weight).sum(), (x, lora.a, lora.b))
    theirs = torch.autograd.grad((plain(linear, a, b, x, 1.75) * weight).sum(), (x, a, b))
    assert_close(lora(x), plain(linear, a, b, x, 1.75), rtol=1e-5, atol=1e-5)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, rtol=1e-5, atol=2e-5)


def test_what_lies_under_adds_its_share_to_output_and_gradient_and_is_off_with_the_rest() -> None:
    linear = layer(bias=True).requires_grad_(False)
    lora = Lora(linear, rank=5, scale=1.75)
    with torch.no_grad():
        lora.a.normal_()
        lora.b.normal_()
    a, b = lora.a.detach().clone().requires_grad_(), lora.b.detach().clone().requires_grad_()
    lora.under = FrozenLoraTerm(torch.randn(3, 24), torch.randn(40, 3))
    x, weight = torch.randn(2, 7, 24, requires_grad=True), torch.randn(2, 7, 40)
    formula = plain(linear, a, b, x, 1.75) + x @ lora.under.a.t() @ lora.under.b.t()
    ours = torch.autograd.grad((lora(x) * weight).sum(), (x, lora.a, lora.b))
    theirs = torch.autograd.grad((formula * weight).sum(), (x, a, b))
    assert_close(lora(x), formula, rtol=1e-5, atol=1e-5)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, other, rtol=1e-5, atol=5e-5)
    lora.is_on = False
    assert_close(lora(x), linear(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("packed", [True, False])
def test_a_layer_switched_off_and_a_frozen_one_are_the_base_layer(packed: bool) -> None:
    linear = layer(bias=True).requires_grad_(False)
    lora = Lora(held(linear, packed), rank=5, scale=1.0)
    with torch.no_grad():
        lora.b.normal_()
        lora.a.normal_()
    lora.is_on = False
    x = torch.randn(3, 24, requires_grad=True)
    for ours in (lora(x), Frozen(held(linear, packed))(x)):
        assert_close(ours, linear(x), rtol=1e-5, atol=1e-5)
        theirs = torch.autograd.grad(linear(x).square().sum(), x)[0]
        assert_close(torch.autograd.grad(ours.square().sum(), x)[0], theirs, rtol=1e-5, atol=1e-4)


def test_input_that_needs_no_gradient_gets_none_and_the_weights_do() -> None:
    lora = Lora(layer(bias=False), rank=2, scale=1.0)
    with torch.no_grad():
        lora.a.normal_()
    lora(torch.randn(3, 24)).sum().backward()
    assert lora.b.grad is not None and float(lora.b.grad.abs().max()) > 0


def test_in_bfloat16_the_gradient_goes_through_the_weight_read_back() -> None:
    linear = layer(bias=True).requires_grad_(False).bfloat16()
    lora = Lora(held(linear, packed=True), rank=2, scale=1.0)
    x = torch.randn(3, 24).bfloat16().requires_grad_()
    assert_close(lora(x), linear(x), rtol=2e-2, atol=2e-2)
    ours, theirs = (torch.autograd.grad(one(x).square().sum(), x)[0] for one in (lora, linear))
    assert_close(ours, theirs, rtol=5e-2, atol=5e-2)
