"""Convolutions of published networks that no light package ships, as plain torch modules.

Only what decides a convolution's shape is kept: channels, filters, strides, pads, pooling and concatenation.
Activations, normalisation, biases and recurrent or dense tails are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional


def conv2(channels: int, filters: int, size: int = 3, stride: int = 1, pad: int | None = None) -> nn.Conv2d:
    """Square 2D convolution; ``pad`` defaults to half the filter."""
    return nn.Conv2d(channels, filters, size, stride, size // 2 if pad is None else pad)


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015): ``pad`` 0 is the paper's, 1 keeps the image size."""

    def __init__(self, channels: int, classes: int, pad: int) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        inputs = (channels, *widths[:-1])
        self.down = nn.ModuleList(self._pair(c, k, pad) for c, k in zip(inputs, widths, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(k, k // 2, 2, 2) for k in widths[:0:-1])
        self.merge = nn.ModuleList(self._pair(k, k // 2, pad) for k in widths[:0:-1])
        self.head = conv2(widths[0], classes, 1)

    @staticmethod
    def _pair(channels: int, filters: int, pad: int) -> nn.Sequential:
        return nn.Sequential(conv2(channels, filters, pad=pad), conv2(filters, filters, pad=pad))

    def forward(self, x: Tensor) -> Tensor:
        """Contract, then expand; skips are cropped to the smaller image."""
        skips: list[Tensor] = []
        for level in self.down:
            x = level(functional.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        for up, merge, skip in zip(self.up, self.merge, skips[-2::-1], strict=True):
            x = up(x)
            x = merge(torch.cat([skip[..., : x.shape[-2], : x.shape[-1]], x], dim=1))
        return self.head(x)


class C2f(nn.Module):
    """YOLOv8's cross-stage block: split in two halves, chain ``depth`` bottlenecks, join all."""

    def __init__(self, channels: int, filters: int, depth: int) -> None:
        super().__init__()
        half = filters // 2
        self.cv1 = conv2(channels, filters, 1)
        self.cv2 = conv2((2 + depth) * half, filters, 1)
        self.m = nn.ModuleList(nn.Sequential(conv2(half, half), conv2(half, half)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """N x filters x H x W."""
        parts = list(self.cv1(x).chunk(2, dim=1))
        for bottleneck in self.m:
            parts.append(bottleneck(parts[-1]))
        return self.cv2(torch.cat(parts, dim=1))


class Sppf(nn.Module):
    """YOLOv8's spatial pyramid pooling: three chained 5x5 max poolings between two 1x1 convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.cv1 = conv2(channels, channels // 2, 1)
        self.cv2 = conv2(channels * 2, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Keep the shape."""
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv2(torch.cat(parts, dim=1))


class YoloV8(nn.Module):
    """YOLOv8 detector; ``width`` is the stem's filter count (16 n, 32 s), ``classes`` the label count."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        w1, w2, w4, w8, w16 = (width * m for m in (1, 2, 4, 8, 16))
        self.stem = conv2(3, w1, 3, 2)
        self.stage2 = nn.Sequential(conv2(w1, w2, 3, 2), C2f(w2, w2, 1))
        self.stage3 = nn.Sequential(conv2(w2, w4, 3, 2), C2f(w4, w4, 2))
        self.stage4 = nn.Sequential(conv2(w4, w8, 3, 2), C2f(w8, w8, 2))
        self.stage5 = nn.Sequential(conv2(w8, w16, 3, 2), C2f(w16, w16, 1), Sppf(w16))
        self.top4, self.top3 = C2f(w16 + w8, w8, 1), C2f(w8 + w4, w4, 1)
        self.down4, self.join4 = conv2(w4, w4, 3, 2), C2f(w4 + w8, w8, 1)
        self.down5, self.join5 = conv2(w8, w8, 3, 2), C2f(w8 + w16, w16, 1)
        boxes, labels = max(16, w4 // 4, 64), max(w4, min(classes, 100))
        self.box = nn.ModuleList(self._head(c, boxes, 64) for c in (w4, w8, w16))
        self.label = nn.ModuleList(self._head(c, labels, classes) for c in (w4, w8, w16))

    @staticmethod
    def _head(channels: int, hidden: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(conv2(channels, hidden), conv2(hidden, hidden), conv2(hidden, outputs, 1))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Box and label maps of strides 8, 16 and 32."""
        p3 = self.stage3(self.stage2(self.stem(x)))
        p4 = self.stage4(p3)
        p5 = self.stage5(p4)
        n4 = self.top4(torch.cat([functional.interpolate(p5, scale_factor=2), p4], dim=1))
        o3 = self.top3(torch.cat([functional.interpolate(n4, scale_factor=2), p3], dim=1))
        o4 = self.join4(torch.cat([self.down4(o3), n4], dim=1))
        o5 = self.join5(torch.cat([self.down5(o4), p5], dim=1))
        maps = (o3, o4, o5)
        return [head(m) for heads in (self.box, self.label) for head, m in zip(heads, maps, strict=True)]


class Edsr(nn.Module):
    """EDSR baseline super-resolution x2 (Lim et al. 2017): 64 filters, 16 residual blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.head = conv2(3, 64)
        self.body = nn.Sequential(*(conv2(64, 64) for _ in range(33)))
        self.upsample = conv2(64, 256)
        self.tail = conv2(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        """N x 3 x 2H x 2W."""
        return self.tail(functional.pixel_shuffle(self.upsample(self.body(self.head(x))), 2))


class CsrNet(nn.Module):
    """CSRNet crowd counter, variant B (Li et al. 2018): ten layers of VGG-16, then six of dilation 2."""

    def __init__(self) -> None:
        super().__init__()
        front: list[nn.Module] = []
        channels = 3
        for filters, depth in ((64, 2), (128, 2), (256, 3), (512, 3)):
            front += [nn.MaxPool2d(2)] if front else []
            for _ in range(depth):
                front.append(conv2(channels, filters))
                channels = filters
        self.front = nn.Sequential(*front)
        widths = (512, 512, 512, 512, 256, 128, 64)
        self.back = nn.Sequential(*(nn.Conv2d(c, k, 3, padding=2, dilation=2) for c, k in pairwise(widths)))
        self.head = conv2(64, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Density map, N x 1 x H/8 x W/8."""
        return self.head(self.back(self.front(x)))


def deep_speech2() -> nn.Module:
    """DeepSpeech 2's convolutions (Amodei et al. 2015): input N x 1 x frequency bins x frames."""
    return nn.Sequential(
        nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)),
        nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)),
        nn.Conv2d(32, 96, (21, 11), (2, 1), (10, 5)),
    )


def crnn() -> nn.Module:
    """CRNN's convolutions (Shi et al. 2015): input N x 1 x 32 x width of a line of text."""
    tall_pool = nn.MaxPool2d((2, 2), (2, 1), (0, 1))
    return nn.Sequential(
        *(conv2(1, 64), nn.MaxPool2d(2), conv2(64, 128), nn.MaxPool2d(2)),
        *(conv2(128, 256), conv2(256, 256), tall_pool, conv2(256, 512), conv2(512, 512), tall_pool),
        conv2(512, 512, 2, pad=0),
    )


def c3d() -> nn.Module:
    """C3D's convolutions (Tran et al. 2015): input N x 3 x 16 x 112 x 112."""
    layers: list[nn.Module] = []
    channels = 3
    for filters, depth in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(depth):
            layers.append(nn.Conv3d(channels, filters, 3, padding=1))
            channels = filters
        layers.append(nn.MaxPool3d((1, 2, 2) if filters == 64 else 2))
    return nn.Sequential(*layers)


def same_pool(x: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """``x`` (N x C x D x H x W) max-pooled to ceil(extent / stride), TensorFlow's SAME rule."""
    pads: list[int] = []
    for extent, f, s in zip(reversed(x.shape[2:]), reversed(size), reversed(stride), strict=True):
        total = max((-(-extent // s) - 1) * s + f - extent, 0)
        pads += [total // 2, total - total // 2]
    return functional.max_pool3d(functional.pad(x, pads), tuple(size), tuple(stride))


class Inception3d(nn.Module):
    """One I3D mixed block: 1x1x1 | 1x1x1-3x3x3 | 1x1x1-3x3x3 | pool-1x1x1, joined."""

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        super().__init__()
        b0, b1a, b1b, b2a, b2b, b3 = widths
        self.b0 = nn.Conv3d(channels, b0, 1)
        self.b1 = nn.Sequential(nn.Conv3d(channels, b1a, 1), nn.Conv3d(b1a, b1b, 3, padding=1))
        self.b2 = nn.Sequential(nn.Conv3d(channels, b2a, 1), nn.Conv3d(b2a, b2b, 3, padding=1))
        self.b3 = nn.Sequential(nn.MaxPool3d(3, 1, 1), nn.Conv3d(channels, b3, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Keep the image; the channels become the sum of the four branches."""
        return torch.cat([self.b0(x), self.b1(x), self.b2(x), self.b3(x)], dim=1)


class I3d(nn.Module):
    """Inception I3D (Carreira and Zisserman 2017): input N x 3 x frames x 224 x 224.

    The stem's SAME padding is asymmetric (2 before, 3 after): the image is padded first, the stem pads none.
    """

    MIXED = (
        ("mixed_3b", 192, (64, 96, 128, 16, 32, 32)),
        ("mixed_3c", 256, (128, 128, 192, 32, 96, 64)),
        ("mixed_4b", 480, (192, 96, 208, 16, 48, 64)),
        ("mixed_4c", 512, (160, 112, 224, 24, 64, 64)),
        ("mixed_4d", 512, (128, 128, 256, 24, 64, 64)),
        ("mixed_4e", 512, (112, 144, 288, 32, 64, 64)),
        ("mixed_4f", 528, (256, 160, 320, 32, 128, 128)),
        ("mixed_5b", 832, (256, 160, 320, 32, 128, 128)),
        ("mixed_5c", 832, (384, 192, 384, 48, 128, 128)),
    )
    POOL_BEFORE: ClassVar = {
        "mixed_3b": ((1, 3, 3), (1, 2, 2)),
        "mixed_4b": ((3, 3, 3), (2, 2, 2)),
        "mixed_5b": ((2, 2, 2), (2, 2, 2)),
    }

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1a = nn.Conv3d(3, 64, 7, 2)
        self.conv2b = nn.Conv3d(64, 64, 1)
        self.conv2c = nn.Conv3d(64, 192, 3, padding=1)
        self.mixed = nn.ModuleDict({name: Inception3d(channels, widths) for name, channels, widths in self.MIXED})
        self.logits = nn.Conv3d(1024, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """N x classes x D x 1 x 1."""
        x = self.conv1a(functional.pad(x, [2, 3] * 3))
        x = self.conv2c(self.conv2b(same_pool(x, (1, 3, 3), (1, 2, 2))))
        for name, block in self.mixed.items():
            x = block(same_pool(x, *self.POOL_BEFORE[name]) if name in self.POOL_BEFORE else x)
        return self.logits(functional.avg_pool3d(x, (2, 7, 7), 1))
