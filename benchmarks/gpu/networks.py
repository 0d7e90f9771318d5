"""Networks whose training steps are timed: those of torchvision, and a few that it lacks."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

SEED = 0


class Network(NamedTuple):
    """How a network is made, and the shape of its input."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]


def torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    """Return what makes a network of torchvision without weights."""

    def make() -> nn.Module:
        # The operators of torchvision are not needed, and may be missing.
        sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
        import torchvision as library

        source = library.models.video if hasattr(library.models.video, name) else library.models
        return getattr(source, name)(weights=None, **options)

    return make


def frozen(make: Callable[[], nn.Module], parts: tuple[str, ...]) -> Callable[[], nn.Module]:
    """Return what makes a network of which some parts are not trained, their norms included."""

    def frozen_network() -> nn.Module:
        network = make()
        for name in parts:
            network.get_submodule(name).requires_grad_(False).eval()
        return network

    return frozen_network


def group_norm(channels: int) -> nn.Module:
    """Return a group norm of 32 groups."""
    return nn.GroupNorm(32, channels)


class Residual(nn.Module):
    """Two convolutions behind group norms, as diffusion models have them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([group_norm(inputs), group_norm(outputs)])
        self.convolutions = nn.ModuleList(
            [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)]
        )
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both branches."""
        y = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            y = convolution(functional.silu(norm(y)))
        return self.skip(x) + y


class Attention(nn.Module):
    """Self-attention of pixels, behind a group norm."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = group_norm(channels)
        self.inputs, self.output = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input and what eight heads add to it."""
        n, c, h, w = x.shape
        q, k, v = self.inputs(self.norm(x)).view(n, 3, 8, c // 8, h * w).transpose(-1, -2).unbind(1)
        y = functional.scaled_dot_product_attention(q, k, v)
        return x + self.output(y.transpose(-1, -2).reshape(n, c, h, w))


class DiffusionUNet(nn.Module):
    """A U-Net for latents of 64 x 64: group norms, biases, attention at the lower levels."""

    def __init__(self, width: int = 256, factors: tuple[int, ...] = (1, 2, 4)) -> None:
        super().__init__()
        self.stem, channels = nn.Conv2d(4, width, 3, padding=1), width
        self.down, self.up, kept = nn.ModuleList(), nn.ModuleList(), [width]
        for level, factor in enumerate(factors):
            for _ in range(2):
                block = [Residual(channels, factor * width), *([Attention(factor * width)] if level else [])]
                self.down.append(nn.Sequential(*block))
                channels = factor * width
                kept.append(channels)
            if level < len(factors) - 1:
                self.down.append(nn.Conv2d(channels, channels, 3, stride=2, padding=1))
                kept.append(channels)
        self.middle = nn.Sequential(Residual(channels, channels), Attention(channels), Residual(channels, channels))
        for level, factor in reversed(list(enumerate(factors))):
            for number in range(3):
                block = [
                    Residual(channels + kept.pop(), factor * width),
                    *([Attention(factor * width)] if level else []),
                ]
                if level and number == 2:
                    block += [nn.Upsample(scale_factor=2), nn.Conv2d(factor * width, factor * width, 3, padding=1)]
                self.up.append(nn.Sequential(*block))
                channels = factor * width
        self.head = nn.Sequential(group_norm(channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a latent of the input's shape."""
        x = self.stem(x)
        kept = [x]
        for block in self.down:
            x = block(x)
            kept.append(x)
        x = self.middle(x)
        for block in self.up:
            x = block(torch.cat([x, kept.pop()], 1))
        return self.head(x)


class UNet(nn.Module):
    """A U-Net of two convolutions a level; ``transposed`` ones grow the image, else its nearest neighbours."""

    def __init__(self, ndim: int, channels: int, widths: tuple[int, ...], norm: str, transposed: bool = False) -> None:
        super().__init__()
        convolution, grow = getattr(nn, f"Conv{ndim}d"), getattr(nn, f"ConvTranspose{ndim}d")

        def block(inputs: int, outputs: int) -> nn.Module:
            layers: list[nn.Module] = []
            for size in (inputs, outputs):
                layers.append(convolution(size, outputs, 3, padding=1, bias=norm == "InstanceNorm"))
                layers += [getattr(nn, f"{norm}{ndim}d")(outputs), nn.ReLU(inplace=True)]
            return nn.Sequential(*layers)

        self.down = nn.ModuleList(block(i, o) for i, o in zip([channels, *widths], widths, strict=False))
        self.grow = nn.ModuleList(
            grow(2 * o, o, 2, stride=2) if transposed else nn.Upsample(scale_factor=2) for o in reversed(widths[:-1])
        )
        self.up = nn.ModuleList(block((2 if transposed else 3) * o, o) for o in reversed(widths[:-1]))
        self.pool, self.head = getattr(nn, f"MaxPool{ndim}d")(2), convolution(widths[0], 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return four classes a pixel."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = self.pool(x)
        x = kept.pop()
        for grow, block in zip(self.grow, self.up, strict=True):
            x = block(torch.cat([grow(x), kept.pop()], 1))
        return self.head(x)


class MobileBlock(nn.Module):
    """Narrow, wide and depthwise in space and time, and narrow again, as video networks for phones have them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = int(2.25 * outputs)
        step = (1, stride, stride)
        self.layers = nn.Sequential(
            nn.Conv3d(inputs, wide, 1, bias=False),
            nn.BatchNorm3d(wide),
            nn.ReLU(inplace=True),
            nn.Conv3d(wide, wide, 3, stride=step, padding=1, groups=wide, bias=False),
            nn.BatchNorm3d(wide),
            nn.SiLU(inplace=True),
            nn.Conv3d(wide, outputs, 1, bias=False),
            nn.BatchNorm3d(outputs),
        )
        self.skip = nn.Conv3d(inputs, outputs, 1, stride=step, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of both branches."""
        return functional.relu(self.skip(x) + self.layers(x))


def mobile_video_network() -> nn.Module:
    """Return four stages of such blocks behind a stem of a filter in space and a depthwise one in time."""
    layers: list[nn.Module] = [
        nn.Conv3d(3, 24, (1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1), bias=False),
        nn.Conv3d(24, 24, (5, 1, 1), padding=(2, 0, 0), groups=24, bias=False),
        nn.BatchNorm3d(24),
        nn.ReLU(inplace=True),
    ]
    inputs = 24
    for outputs, blocks in ((24, 3), (48, 5), (96, 11), (192, 7)):
        for number in range(blocks):
            layers.append(MobileBlock(inputs, outputs, 1 if number else 2))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(192, 400))


class Translator(nn.Module):
    """An image-to-image generator: strided 4x4 filters down, transposed ones up, with skips."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512, 512, 512)) -> None:
        super().__init__()
        inputs = (3, *widths)
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2))
            for i, o in zip(inputs, widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose2d(2 * i if n else i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
            for n, (i, o) in enumerate(zip(widths[::-1], (*widths[-2::-1], 64), strict=True))
        )
        self.head = nn.Conv2d(64, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return an image of the input's size."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
        for number, block in enumerate(self.up):
            x = block(torch.cat([x, kept[-1 - number]], 1) if number else x)
        return self.head(x)


NETWORKS: dict[str, Network] = {
    "resnext50_32x4d": Network(torchvision("resnext50_32x4d"), (64, 3, 224, 224)),
    "r3d_18": Network(torchvision("r3d_18"), (16, 3, 16, 112, 112)),
    "regnet_y_3_2gf": Network(torchvision("regnet_y_3_2gf"), (64, 3, 224, 224)),
    "mobilenet_v3_large": Network(torchvision("mobilenet_v3_large"), (128, 3, 224, 224)),
    "shufflenet_v2_x1_0": Network(torchvision("shufflenet_v2_x1_0"), (128, 3, 224, 224)),
    "unet_2d": Network(lambda: UNet(2, 3, (64, 128, 256, 512), "BatchNorm"), (8, 3, 256, 256)),
    "r2plus1d_18": Network(torchvision("r2plus1d_18"), (8, 3, 16, 112, 112)),
    "unet_3d": Network(lambda: UNet(3, 1, (32, 64, 128, 256), "BatchNorm"), (2, 1, 96, 96, 96)),
    "densenet121": Network(torchvision("densenet121"), (64, 3, 224, 224)),
    "efficientnet_v2_s": Network(torchvision("efficientnet_v2_s"), (64, 3, 224, 224)),
    "resnext101_32x8d": Network(torchvision("resnext101_32x8d"), (32, 3, 224, 224)),
    "inception_v3": Network(torchvision("inception_v3", aux_logits=False, init_weights=False), (64, 3, 299, 299)),
    "resnet50": Network(torchvision("resnet50"), (64, 3, 224, 224)),
    "convnext_tiny": Network(torchvision("convnext_tiny"), (64, 3, 224, 224)),
    "diffusion_unet": Network(DiffusionUNet, (8, 4, 64, 64)),
    "instance_norm_unet_3d": Network(lambda: UNet(3, 1, (32, 64, 128, 256), "InstanceNorm", True), (2, 1, 96, 96, 96)),
    "group_norm_resnet50": Network(torchvision("resnet50", norm_layer=group_norm), (8, 3, 224, 224)),
    "frozen_resnet50": Network(frozen(torchvision("resnet50"), ("conv1", "bn1", "layer1", "layer2")), (8, 3, 224, 224)),
    "vgg11": Network(torchvision("vgg11"), (8, 3, 224, 224)),
    "layer_norm_batch_1": Network(torchvision("convnext_tiny"), (1, 3, 384, 384)),
    "s3d": Network(torchvision("s3d"), (8, 3, 16, 224, 224)),
    "mc3_18": Network(torchvision("mc3_18"), (16, 3, 16, 112, 112)),
    "mnasnet1_0": Network(torchvision("mnasnet1_0"), (128, 3, 224, 224)),
    "mobile_video": Network(mobile_video_network, (8, 3, 16, 160, 160)),
    "translator": Network(Translator, (4, 3, 256, 256)),
    "resnext50_batch_4": Network(torchvision("resnext50_32x4d"), (4, 3, 224, 224)),
    "grey_unet_2d": Network(lambda: UNet(2, 1, (32, 64, 128, 256), "BatchNorm", True), (16, 1, 192, 192)),
    "wide_resnet50_2": Network(torchvision("wide_resnet50_2"), (64, 3, 224, 224)),
}


def layout(shape: tuple[int, ...]) -> torch.memory_format:
    """Return channels last of an input's number of axes."""
    return torch.channels_last if len(shape) == 4 else torch.channels_last_3d


def network_and_input(name: str, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor]:
    """Return a network on the GPU, channels last, with the same weights each time, and its input."""
    made = NETWORKS[name]
    torch.manual_seed(SEED)
    with torch.device("cuda"):
        network = made.make()
        x = torch.randn(made.shape, dtype=dtype)
    return network.to(dtype).to(memory_format=layout(made.shape)), x.contiguous(memory_format=layout(made.shape))
