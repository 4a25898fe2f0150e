"""The device that is not there refuses and counts as CUDA does, and computes as the CPU does."""

import copy
import inspect
import io
import pickle
import re

import numpy as np
import pytest
import torch
from fake_device import DEVICE, FakeDevice, Place
from torch import nn
from toy import norm_net

SIX = 6 * 4
"""The bytes of the tensor that most of these tests begin with."""


@pytest.fixture
def gpu():
    with FakeDevice() as gpu:
        yield gpu


def here():
    return torch.arange(6.0)


def there():
    """Six numbers on the device, made there: nothing is counted."""
    return torch.arange(6.0, device=DEVICE)


REFUSED = {
    "numpy": lambda: there().numpy(),
    "an array": lambda: np.asarray(there()),
    "a function of NumPy": lambda: np.add(there(), 1),
    "dlpack": lambda: np.from_dlpack(there()),
    "a sum": lambda: there() + here(),
    "a sum in place": lambda: there().add_(here()),
    "a sum in place on the CPU": lambda: here().add_(there()),
    "a sum in place on a scalar of the CPU": lambda: torch.tensor(1.0).add_(there()[0]),
    "a result on the CPU": lambda: torch.add(there(), there(), out=here()),
    "two scalars of the CPU": lambda: torch.addcmul(there(), *torch.ones(2)),
    "a list": lambda: torch.cat([there(), here()]),
    "a list with a scalar of the CPU": lambda: torch.stack([there()[0], torch.tensor(1.0)]),
    "many at once": lambda: torch._foreach_add([there()], [here()]),
    "a product": lambda: there().view(2, 3) @ here().view(3, 2),
    "a comparison": lambda: torch.equal(there(), here()),
    "a choice": lambda: torch.where(there() > 2, there(), here()),
    "a mask of the CPU": lambda: there().masked_fill(here() > 2, 0.0),
    "an index of the device for the CPU": lambda: here()[there().long()],
    "a table's index": lambda: nn.functional.embedding(torch.tensor([1]), there().view(2, 3)),
    "gathering": lambda: there().gather(0, torch.tensor([1])),
    "values of the CPU": lambda: there().__setitem__(torch.tensor([1, 2]), torch.ones(2)),
    "a layer on the CPU": lambda: nn.Linear(6, 2)(there()),
    "drawing by the CPU's generator": lambda: there().normal_(generator=torch.Generator()),
    "making by the CPU's generator": lambda: torch.rand(
        3, device=DEVICE, generator=torch.Generator()
    ),
    "a generator": lambda: torch.Generator(DEVICE),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cuda_refuses_is_refused(gpu, what):
    told = "to numpy|Cannot pack|on the same device|a generator of|LAZY device type not an"
    with pytest.raises((TypeError, RuntimeError, BufferError), match=told):
        REFUSED[what]()


def put(x, index, value):
    x[index] = value
    return x


def saved():
    file = io.BytesIO()
    torch.save({"a": there()}, file)
    return file


# By name: what is done, and the bytes to the host, the bytes from it, and the waits.
COUNTED = {
    "to the host": (lambda: there().cpu(), SIX, 0, 0),
    "to the host by name": (lambda: there().to("cpu"), SIX, 0, 0),
    "as what travels": (lambda: there().bfloat16().to("cpu", torch.float64), SIX // 2, 0, 0),
    "not waited for": (lambda: there().to("cpu", torch.float64, non_blocking=True), 2 * SIX, 0, 0),
    "from the host": (lambda: here().to(DEVICE), 0, SIX, 0),
    "from the host in half": (lambda: here().to(DEVICE, torch.bfloat16), 0, SIX // 2, 0),
    "a copy to the host": (lambda: here().copy_(there()), SIX, 0, 0),
    "a copy from the host": (lambda: there().copy_(here()), 0, SIX, 0),
    "a copy of a row": (lambda: there().view(2, 3).copy_(torch.ones(3)), 0, SIX, 0),
    "a piece": (lambda: there()[2:4].cpu(), 8, 0, 0),
    "assigned from the host": (lambda: put(there(), slice(0, 2), torch.ones(2)), 0, 8, 0),
    "assigned to the host": (lambda: put(here(), slice(0, 2), there()[:2]), 8, 0, 0),
    "copies of many": (lambda: torch._foreach_copy_([there()], [here()]), 0, SIX, 0),
    "numbers": (lambda: torch.tensor([1.0, 2.0], device=DEVICE), 0, 8, 0),
    "an array": (lambda: torch.as_tensor(np.ones(3), device=DEVICE), 0, 24, 0),
    "more like it": (lambda: there().new_tensor([1.0, 2.0]), 0, 8, 0),
    "a list": (lambda: there().tolist(), SIX, 0, 0),
    "numpy by force": (lambda: there().numpy(force=True), SIX, 0, 0),
    "a file": (saved, SIX, 0, 0),
    "shown": (lambda: repr(there()), SIX, 0, 0),
    "an index of the CPU": (lambda: there()[torch.tensor([1, 2])], 0, 16, 0),
    "a mask of the CPU": (lambda: there()[here() > 2], 0, 24, 0),
    "set by an index to a number": (lambda: put(there(), there().long(), 1.0), 0, 4, 0),
    "one set to a number": (lambda: put(there(), 1, 1.0), 0, 4, 0),
    "scalars of the CPU": (lambda: torch.where(there() > 2, *torch.ones(2)), 0, 8, 0),
    "item": (lambda: there()[1].item(), 0, 0, 1),
    "float": (lambda: float(there()[1]), 0, 0, 1),
    "int": (lambda: int(there()[1]), 0, 0, 1),
    "bool": (lambda: bool(there()[1]), 0, 0, 1),
    "a position": (lambda: "abc"[there().long()[1]], 0, 0, 1),
    "in": (lambda: 3.0 in there(), 0, 0, 1),
    "text": (lambda: f"{there()[1]:.2f}", 0, 0, 1),
    "one by one": (lambda: [float(x) for x in there()], 0, 0, 6),
    "equal": (lambda: torch.equal(there(), there()), 0, 0, 1),
    "close": (lambda: torch.allclose(there(), there()), 0, 0, 1),
    "nonzero": (lambda: there().nonzero(), 0, 0, 1),
    "where": (lambda: torch.where(there() > 2), 0, 0, 1),
    "masked_select": (lambda: there().masked_select(there() > 2), 0, 0, 1),
    "a mask": (lambda: there()[there() > 2], 0, 0, 1),
    "unique": (lambda: there().unique(), 0, 0, 1),
    "unique in a row": (lambda: there().unique_consecutive(), 0, 0, 1),
    "unique rows": (lambda: there().view(2, 3).unique(dim=0), 0, 0, 1),
    "counts": (lambda: there().long().bincount(), 0, 0, 1),
    "draws": (lambda: there().multinomial(2), 0, 0, 1),
    "repeated": (lambda: there().repeat_interleave(there().long()), 0, 0, 1),
    "an inverse": (lambda: torch.linalg.inv(torch.eye(2, device=DEVICE)), 0, 0, 1),
    "filled with one of its own": (lambda: there().masked_fill(there() > 2, there()[1]), 0, 0, 1),
    "set to one of its own": (lambda: put(there(), there() > 2, there()[1]), 0, 0, 1),
    "set to many": (lambda: put(there(), there() > 2, torch.ones(3, device=DEVICE)), 0, 0, 1),
    "the CPU's set to it": (lambda: put(here(), torch.tensor([1, 2]), there()[1]), 0, 0, 1),
    "the CPU's filled with it": (lambda: here().fill_(there()[1]), 0, 0, 1),
    # What costs nothing on CUDA.
    "made there": (lambda: torch.zeros_like(here(), device=DEVICE), 0, 0, 0),
    "made here": (lambda: torch.zeros_like(there(), device="cpu"), 0, 0, 0),
    "already there": (lambda: there().to(DEVICE), 0, 0, 0),
    "another type": (lambda: there().double(), 0, 0, 0),
    "one scalar of the CPU": (lambda: there() * torch.tensor(2.0) + 1, 0, 0, 0),
    "many by a scalar": (lambda: torch._foreach_mul_([there()], torch.tensor(2.0)), 0, 0, 0),
    "a position by number": (lambda: there()[1], 0, 0, 0),
    "an index": (lambda: there()[there().long()], 0, 0, 0),
    "set to a number": (lambda: put(there(), there() > 2, 1.0), 0, 0, 0),
    "set to a scalar": (lambda: put(there(), there() > 2, torch.tensor(1.0)), 0, 0, 0),
    "several set to a number": (lambda: put(there(), slice(2), 1.0), 0, 0, 0),
    "a choice of a number": (lambda: torch.where(there() > 2, there(), 0.0), 0, 0, 0),
    "filled": (lambda: there().masked_fill(there() > 2, 1.0), 0, 0, 0),
    "whether it is finite": (lambda: there().isfinite().all(), 0, 0, 0),
    "a shape": (lambda: (len(there()), there().nbytes, there().dtype), 0, 0, 0),
}


@pytest.mark.parametrize("what", COUNTED)
def test_what_crosses_is_counted(gpu, what):
    do, to_host, from_host, waits = COUNTED[what]
    do()
    assert (gpu.to_host, gpu.from_host, gpu.waits) == (to_host, from_host, waits), gpu.table()


def test_the_line_that_asked_is_told(gpu):
    lines = []

    def asks(x):
        lines.append(inspect.currentframe().f_lineno + 1)
        x.cpu(), x.cpu()

    asks(there())
    function = "test_the_line_that_asked_is_told.<locals>.asks"
    place = Place("test_fake_device.py", function, lines[0])
    assert gpu.amounts == {("to host", place): 2 * SIX}
    assert gpu.times == {("to host", place): 2}
    assert re.fullmatch(rf" +2 × to host +48  test_fake_device.py:\d+ {function}", gpu.table())


@pytest.mark.parametrize(
    ("module", "file"),
    [("house.room", "house/room.py"), ("house", "house/__init__.py"), ("house", "house.py")],
)
def test_files_are_told_as_they_are_imported(gpu, module, file):
    code = compile("x.cpu()", f"/anywhere/{file}", "exec")
    exec(code, {"__name__": module, "x": there()})  # noqa: S102
    assert [place for _, place in gpu.amounts] == [Place(file, "<module>", 1)]


def test_code_of_torch_and_comprehensions_are_not_who_asked(gpu):
    [nn.Linear(6, 2).to(DEVICE) for _ in range(2)]
    ((_, place),) = gpu.amounts
    assert place.function == "test_code_of_torch_and_comprehensions_are_not_who_asked"


def trained(device, kind, **settings):
    """The weights and moments after a few steps with BatchNorm, dropout and a clipped gradient."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = norm_net().to(device)
        table = nn.Embedding(9, 4).to(device)
        table.weight.requires_grad_(False)  # a frozen part
        rows = torch.randint(9, (5, 7)).to(device)
        labels = torch.randint(2, (5, 7)).to(device)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **settings)
        for row, label in zip(rows, labels, strict=True):
            optimizer.zero_grad()
            model.loss({"x": table(row), "y": label}).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    moments = [m for state in optimizer.state_dict()["state"].values() for m in state.values()]
    return [t.cpu() for t in (*model.state_dict().values(), *moments) if t is not None]


OPTIMIZERS = [
    ("SGD", {"momentum": 0.9}),
    ("Adam", {}),
    ("AdamW", {}),
    ("AdamW", {"foreach": True}),
]


@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS)
def test_a_training_has_the_bits_of_the_cpu_and_moves_nothing(kind, settings):
    expected = trained("cpu", kind, **settings)
    with FakeDevice() as gpu:
        found = trained(DEVICE, kind, **settings)
    assert len(found) == len(expected) > 10
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    asking = {place.function for _, place in gpu.amounts}
    assert asking == {"trained"}, gpu.table()  # at its beginning and at its end
    assert gpu.waits == 0


@pytest.mark.parametrize("half", [False, True])
def test_gradients_of_single_examples_have_the_bits_of_the_cpu(gpu, half):
    model, x, y = nn.Linear(4, 2), torch.randn(5, 4), torch.randint(2, (5,))

    def loss(weights, x, y):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=half):
            logits = torch.func.functional_call(model, weights, (x[None],))
            return nn.functional.cross_entropy(logits, y[None])

    each = torch.vmap(torch.func.grad(loss), (None, 0, 0))
    weights = {name: p.detach() for name, p in model.named_parameters()}
    expected = each(weights, x, y)
    found = each({n: w.to(DEVICE) for n, w in weights.items()}, x.to(DEVICE), y.to(DEVICE))
    assert all(torch.equal(found[name].cpu(), expected[name]) for name in weights)


def test_autocast_rounds_as_the_cpu_s_does(gpu):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    x, y = torch.randn(5, 4), torch.randint(3, (5,))

    def gradients(model, x, y):
        with torch.autocast(x.device.type, torch.bfloat16):
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            with torch.autocast(x.device.type, enabled=False):
                whole = x @ x.mT
        found = logits.dtype, loss.dtype, whole.dtype
        assert found == (torch.bfloat16, torch.float32, torch.float32)
        return torch.autograd.grad(loss, list(model.parameters()))

    expected = gradients(model, x, y)
    found = gradients(copy.deepcopy(model).to(DEVICE), x.to(DEVICE), y.to(DEVICE))
    assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))


def test_autocast_keeps_norms_in_single_precision_as_cuda_s_does(gpu):
    with torch.autocast(DEVICE.type):
        rounded = there().view(2, 3) @ torch.ones(3, 3, device=DEVICE)
        assert rounded.dtype == torch.float16
        assert nn.functional.layer_norm(rounded, (3,)).dtype == torch.float32
        assert (there().double() @ there().double()).dtype == torch.float64


def test_tensors_that_share_their_numbers_change_together(gpu):
    x = there()
    rows = x.view(2, 3)
    rows[1].zero_()
    first, rest = torch.split(x, [1, 5])
    assert first.add_(7) is first
    assert x.tolist() == [7, 1, 2, 0, 0, 0]
    assert rest.detach()[0] == 1
    assert x._version == rows._version == 2
    assert x.data_ptr() == rows.data_ptr() != x.clone().data_ptr()
    assert torch.ops.aten.add_.Tensor(x, 1) is x


def test_shapes_change_in_place(gpu):
    x = there().view(2, 3).requires_grad_()
    y = x * 2
    y.t_().unsqueeze_(0)
    assert y.shape == (1, 3, 2)
    y.pow(2).sum().backward()
    assert x.grad.tolist() == [[0, 8, 16], [24, 32, 40]]
    assert torch.add(there(), 1, out=torch.empty(0, device=DEVICE)).tolist() == [1, 2, 3, 4, 5, 6]
    assert (torch.ones(2, device=DEVICE) @ there().view(2, 3)).tolist() == [3, 5, 7]


def test_data_is_put_in_the_place_of_data(gpu):
    parameter, new = nn.Parameter(there()), there() * 2
    parameter.data = new
    new.add_(1)
    parameter.data.mul_(10)
    assert parameter.tolist() == [10, 30, 50, 70, 90, 110]
    assert isinstance(parameter, nn.Parameter)
    assert parameter.requires_grad


def test_parameters_stay_themselves_and_tied(gpu):
    model = nn.ModuleList([nn.Embedding(3, 4), nn.Linear(4, 3, bias=False)])
    model[1].weight = model[0].weight
    before = model[0].weight
    model.to(DEVICE)
    assert model[1].weight is model[0].weight is before
    assert (before.device, len(list(model.parameters()))) == (DEVICE, 1)
    assert gpu.from_host == 3 * 4 * 4


def test_states_are_copied_saved_and_loaded(gpu):
    model = norm_net().to(DEVICE)
    other, file = copy.deepcopy(model), io.BytesIO()
    with torch.no_grad():
        for tensor in other.state_dict().values():
            tensor.add_(1)
    size = sum(t.nbytes for t in model.state_dict().values())
    crossed = gpu.from_host
    torch.save(other.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert (gpu.to_host, gpu.from_host - crossed) == (size, size)
    assert all(t.device == DEVICE for t in loaded.values())
    model.load_state_dict(loaded)
    assert gpu.to_host == size
    for one, two in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(one, two)
    assert isinstance(pickle.loads(pickle.dumps(model.layers[0].weight)), nn.Parameter)  # noqa: S301
    file.seek(0)
    assert all(t.device.type == "cpu" for t in torch.load(file, map_location="cpu").values())


def test_there_is_one_device_and_it_ends():
    before = torch.autocast
    with FakeDevice():
        x = there()
        with pytest.raises(RuntimeError, match="one FakeDevice at a time"), FakeDevice():
            pass
        assert x[1] == 1
    assert torch.autocast is before
    assert not torch._C._only_lift_cpu_tensors()
    with pytest.raises(RuntimeError, match="outside of its FakeDevice"):
        x + 1
    with pytest.raises(NotImplementedError, match="Lazy"):
        there()
    assert "4." in repr(x)
