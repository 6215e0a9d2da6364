"""A program as a user of Vitis AI writes it: prune a torch model in steps, train it with quantization, deploy it.

The argument is a file with the arrays `image`, `label`, `val_image` and `val_label`. It prints the accuracies of the float model,
of the pruned one, of the trained quantized one and of the DPU.
"""

import subprocess
import sys

import numpy as np
import pytorch_nndct.nn as nndct_nn
import torch
import vart
import xir
from pytorch_nndct import QatProcessor, get_pruning_runner
from pytorch_nndct.nn.modules.functional import Add
from pytorch_nndct.utils import slim
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu2 = nn.ReLU(inplace=True)
        self.skip_add = Add()
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x):
        out = self.relu1(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu2(self.skip_add(out, identity))


class ResNet8(nn.Module):
    """Three blocks between stubs."""

    def __init__(self, num_classes=10):
        super().__init__()
        self.quant_stub = nndct_nn.QuantStub()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(BasicBlock(16, 16))
        self.layer2 = nn.Sequential(BasicBlock(16, 32, 2))
        self.layer3 = nn.Sequential(BasicBlock(32, 64, 2))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(64, num_classes)
        self.dequant_stub = nndct_nn.DeQuantStub()

    def forward(self, x):
        x = self.quant_stub(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        x = torch.flatten(self.avgpool(x), 1)
        return self.dequant_stub(self.fc(x))


def train(loader, model, optimizer, epochs):
    criterion = nn.CrossEntropyLoss()
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, [group["lr"] for group in optimizer.param_groups], total_steps=epochs * len(loader)
    )
    for _ in range(epochs):
        model.train()
        for images, target in loader:
            loss = criterion(model(images), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()


def evaluate(model, loader):
    model.eval()
    hits = count = 0
    with torch.no_grad():
        for images, target in loader:
            hits += (model(images).argmax(1) == target).sum()
            count += len(target)
    return hits / count


def prune(model, inputs, train_loader, val_loader, epochs):
    """The documented loop: analysis once, then steps of pruning and training."""
    for ratio in (0.2, 0.4):
        runner = get_pruning_runner(model, inputs, "iterative")
        runner.ana(evaluate, args=(val_loader,))
        sparse = runner.prune(removal_ratio=ratio)
        train(train_loader, sparse, torch.optim.Adam(sparse.parameters(), 2e-3, weight_decay=5e-4), epochs)
        torch.save(sparse.state_dict(), "model_pruned.pth")
        if hasattr(sparse, "slim_state_dict"):
            torch.save(sparse.slim_state_dict(), "model_slim.pth")
        model.load_state_dict(torch.load("model_pruned.pth"))
    slim_model = runner.prune(removal_ratio=ratio, mode="slim")
    slim_model.load_state_dict(torch.load("model_slim.pth"))
    return slim_model


def run_dpu(xmodel, loader):
    children = xir.Graph.deserialize(xmodel).get_root_subgraph().toposort_child_subgraph()
    runner = vart.Runner.create_runner(next(c for c in children if c.get_attr("device") == "DPU"), "run")
    tensor_in, tensor_out = runner.get_input_tensors()[0], runner.get_output_tensors()[0]
    scores = np.empty(tensor_out.dims, np.int8)
    hits = count = 0
    for images, target in loader:
        for image, label in zip(images.numpy(), target, strict=True):
            pixels = image[None].transpose(0, 2, 3, 1) * 2 ** tensor_in.get_attr("fix_point")
            batch = np.clip(np.floor(pixels + 0.5), -128, 127).astype(np.int8, order="C")
            runner.wait(runner.execute_async([batch], [scores]))
            hits += int(scores.argmax()) == int(label)
            count += 1
    return hits / count


def main(samples, epochs="4"):
    torch.manual_seed(0)
    data = {name: torch.from_numpy(array) for name, array in np.load(samples).items()}
    train_set = TensorDataset(data["image"], data["label"])
    val_set = TensorDataset(data["val_image"], data["val_label"])
    train_loader = DataLoader(train_set, batch_size=64, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=100)
    inputs = torch.randn([1, *data["image"].shape[1:]], dtype=torch.float32)

    model = ResNet8()
    train(train_loader, model, torch.optim.Adam(model.parameters(), 1e-2), 2 * int(epochs))
    before = evaluate(model, val_loader)

    pruned = prune(model, inputs, train_loader, val_loader, int(epochs))
    again = slim.load_state_dict(ResNet8(), torch.load("model_slim.pth"))
    assert evaluate(again, val_loader) == evaluate(pruned, val_loader)
    after = evaluate(pruned, val_loader)

    qat_processor = QatProcessor(pruned, inputs, bitwidth=8)
    quantized_model = qat_processor.trainable_model()
    param_groups = [
        {"params": quantized_model.quantizer_parameters(), "lr": 1e-2, "name": "quantizer"},
        {"params": quantized_model.non_quantizer_parameters(), "lr": 5e-4, "name": "weight"},
    ]
    train(train_loader, quantized_model, torch.optim.Adam(param_groups), int(epochs))
    deployable_model = qat_processor.to_deployable(quantized_model, "qat_result")
    trained = evaluate(deployable_model, val_loader)
    assert trained == evaluate(quantized_model, val_loader)
    deployable_model.cpu()
    for images, _ in DataLoader(Subset(val_set, [0]), batch_size=1):
        deployable_model(images)
    qat_processor.export_xmodel("qat_result")

    command = ["vai_c_xir", "-x", "qat_result/ResNet8_int.xmodel", "-a", "DPUCZDX8G_ISA1_B4096"]
    subprocess.run([*command, "-o", "compiled", "-n", "resnet8"], check=True)
    dpu = run_dpu("compiled/resnet8.xmodel", val_loader)
    sizes = [sum(p.numel() for p in module.parameters()) for module in (model, pruned)]
    print(f"parameters {sizes[0]} pruned {sizes[1]}")
    print(f"float {before:.4f} pruned {after:.4f} qat {trained:.4f} dpu {dpu:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
