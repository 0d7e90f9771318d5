"""The networks of the validation table: how each is built without weights, on which images it runs.

Every network is built and run on torch's meta device, so no memory is allocated and nothing is computed.
Order matters: a shape that two networks share belongs to the one listed first.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

# The registry's torchvision wheel may have been compiled for another torch build; its own operators are
# then missing and registering their meta kernels fails. No convolution needs them.
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations"))
warnings.filterwarnings("ignore", message="Failed to load image Python extension")

import diffusers  # noqa: E402
import monai.networks.nets as monai_nets  # noqa: E402
import timm  # noqa: E402
import torch  # noqa: E402
from plain_networks import CsrNet, Edsr, I3d, UNet, YoloV8, c3d, crnn, deep_speech2  # noqa: E402
from pytorchvideo.models import csn, slowfast, x3d  # noqa: E402
from torch import nn  # noqa: E402
from torchvision import models  # noqa: E402
from torchvision.models import detection, segmentation  # noqa: E402

Shape = tuple[int, ...]
Feed = Callable[[nn.Module, Shape], object]


def feed_image(model: nn.Module, shape: Shape) -> object:
    """Run ``model`` on one image batch of ``shape``."""
    return model(torch.empty(shape))


def feed_dense_detector(model: nn.Module, shape: Shape) -> object:
    """Run backbone and head of a one-stage detector; box decoding holds no convolution."""
    features = model.backbone(torch.empty(shape))
    return model.head(list(features.values()))


def feed_region_detector(model: nn.Module, shape: Shape, regions: int = 100) -> object:
    """Run backbone, region proposal head and the convolutional heads on ``regions`` boxes an image."""
    features = list(model.backbone(torch.empty(shape)).values())
    boxes = shape[0] * regions
    heads = model.roi_heads
    model.rpn.head(features)
    if isinstance(heads.box_head, nn.Sequential):
        heads.box_head(torch.empty(boxes, features[0].shape[1], 7, 7))
    for head in (heads.mask_head, heads.keypoint_head):
        if head is not None:
            head(torch.empty(boxes, features[0].shape[1], 14, 14))
    if heads.mask_predictor is not None:
        heads.mask_predictor(torch.empty(boxes, 256, 14, 14))


def feed_diffusion(model: nn.Module, shape: Shape, **extra: Shape) -> object:
    """Run a latent diffusion U-Net; ``extra`` names the shapes of its conditions, less the batch."""
    tokens = torch.empty(shape[0], 77, model.config.cross_attention_dim)
    added = {name: torch.empty(shape[0], *rest) for name, rest in extra.items()}
    return model(torch.empty(shape), torch.empty(()), tokens, added_cond_kwargs=added)


def feed_video_diffusion(model: nn.Module, shape: Shape) -> object:
    """Run the Stable Video Diffusion U-Net on N x frames x 8 x H x W latents."""
    batch = shape[0]
    return model(torch.empty(shape), torch.empty(()), torch.empty(batch, 1, 1024), torch.empty(batch, 3))


def feed_slowfast(model: nn.Module, shape: Shape, ratio: int = 4) -> object:
    """Run both pathways: the fast one sees every frame of ``shape``, the slow one every ``ratio``-th."""
    batch, channels, frames, *image = shape
    return model([torch.empty(batch, channels, frames // ratio, *image), torch.empty(shape)])


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network, its input shapes, the most rows it may give; ``train`` turns on auxiliary heads."""

    name: str
    build: Callable[[], nn.Module]
    runs: tuple[Shape, ...]
    quota: int
    feed: Feed = feed_image
    train: bool = False


def images(batch_sizes_and_images: str, channels: int = 3) -> tuple[Shape, ...]:
    """Parse ``"64@224x224 1@16x112x112"`` into input shapes (N, channels, [D], H, W)."""
    shapes = []
    for text in batch_sizes_and_images.split():
        batch, extents = text.split("@")
        shapes.append((int(batch), channels, *(int(e) for e in extents.split("x"))))
    return tuple(shapes)


def vision(name: str) -> Callable[[], nn.Module]:
    """Return the builder of a torchvision model without weights."""
    loose = {"init_weights": False} if name == "inception_v3" else {}
    return partial(models.get_model, name, weights=None, **loose)


def dense(name: str, **options: object) -> Callable[[], nn.Module]:
    """Return the builder of a torchvision detector or segmenter without weights."""
    package = detection if hasattr(detection, name) else segmentation
    return partial(getattr(package, name), weights=None, weights_backbone=None, **options)


STABLE_DIFFUSION_UNET = {"sample_size": 64, "cross_attention_dim": 768}
STABLE_DIFFUSION_XL_UNET = {
    "sample_size": 128,
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
STABLE_DIFFUSION_VAE = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
}
NNUNET_ANISOTROPIC = {
    "spatial_dims": 3,
    "in_channels": 2,
    "out_channels": 3,
    "kernel_size": [[1, 3, 3], [1, 3, 3], [3, 3, 3], [3, 3, 3], [3, 3, 3], [3, 3, 3]],
    "strides": [[1, 1, 1], [1, 2, 2], [1, 2, 2], [2, 2, 2], [2, 2, 2], [1, 2, 2]],
    "upsample_kernel_size": [[1, 2, 2], [1, 2, 2], [2, 2, 2], [2, 2, 2], [1, 2, 2]],
    "filters": [32, 64, 128, 256, 320, 320],
}
MONAI_UNET = {
    "spatial_dims": 3,
    "in_channels": 1,
    "out_channels": 2,
    "channels": (16, 32, 64, 128, 256),
    "strides": (2, 2, 2, 2),
    "num_res_units": 2,
}

TORCHVISION_CLASSIFIERS = (
    ("resnet50", 16, "64@224x224 1@224x224"),
    ("resnet101", 8, "16@288x288 4@320x320"),
    ("resnet34", 6, "128@224x224 8@256x256"),
    ("resnext50_32x4d", 14, "32@224x224 8@224x224"),
    ("resnext101_32x8d", 11, "16@224x224 64@224x224"),
    ("vgg16", 9, "64@224x224 1@224x224"),
    ("alexnet", 5, "128@224x224"),
    ("densenet121", 14, "32@224x224 8@224x224"),
    ("inception_v3", 18, "32@299x299 8@299x299"),
    ("mobilenet_v2", 12, "128@224x224 1@224x224"),
    ("mobilenet_v3_large", 14, "64@224x224 16@224x224"),
    ("mnasnet1_0", 5, "32@224x224 1@224x224"),
    ("shufflenet_v2_x1_0", 6, "128@224x224"),
    ("squeezenet1_1", 5, "64@224x224 1@224x224"),
    ("efficientnet_b0", 13, "64@224x224 8@224x224"),
    ("efficientnet_b4", 16, "16@380x380 32@320x320"),
    ("convnext_tiny", 11, "32@224x224 8@288x288"),
)
TIMM_CLASSIFIERS = (
    ("regnetx_032", 12, "32@224x224 1@224x224"),
    ("regnety_080", 12, "64@224x224 16@256x256"),
    ("convmixer_768_32", 3, "32@224x224"),
    ("darknet53", 6, "16@416x416 1@256x256"),
    ("dpn68", 12, "32@224x224 4@256x256"),
    ("eca_nfnet_l0", 9, "16@288x288"),
    ("hrnet_w32", 12, "32@256x192 8@384x288"),
    ("mixnet_m", 13, "32@224x224 8@256x256"),
    ("rexnet_100", 9, "64@224x224"),
    ("vit_base_patch16_224", 1, "64@224x224"),
    ("vit_large_patch14_clip_224", 1, "32@224x224"),
    ("xception41", 7, "16@299x299"),
)
CLASSIFIERS = (
    *(
        Network(name=name, build=vision(name), runs=images(runs), quota=quota, train=name == "inception_v3")
        for name, quota, runs in TORCHVISION_CLASSIFIERS
    ),
    *(
        Network(name=name, build=partial(timm.create_model, name), runs=images(runs), quota=quota)
        for name, quota, runs in TIMM_CLASSIFIERS
    ),
)
DENSE = (
    Network(
        name="deeplabv3_resnet50",
        build=dense("deeplabv3_resnet50", num_classes=21),
        runs=images("8@513x513 2@769x769"),
        quota=18,
    ),
    Network(
        name="fcn_resnet50",
        build=dense("fcn_resnet50", num_classes=19),
        runs=images("4@512x1024 1@1024x2048"),
        quota=6,
    ),
    Network(
        name="lraspp_mobilenet_v3_large",
        build=dense("lraspp_mobilenet_v3_large", num_classes=19),
        runs=images("4@512x1024"),
        quota=6,
    ),
    Network(
        name="retinanet_resnet50_fpn",
        build=dense("retinanet_resnet50_fpn"),
        runs=images("2@800x1344 1@800x1216"),
        quota=14,
        feed=feed_dense_detector,
    ),
    Network(
        name="fcos_resnet50_fpn",
        build=dense("fcos_resnet50_fpn"),
        runs=images("4@640x1088"),
        quota=5,
        feed=feed_dense_detector,
    ),
    Network(
        name="ssd300_vgg16",
        build=dense("ssd300_vgg16"),
        runs=images("32@300x300"),
        quota=13,
        feed=feed_dense_detector,
    ),
    Network(
        name="ssdlite320_mobilenet_v3_large",
        build=dense("ssdlite320_mobilenet_v3_large"),
        runs=images("24@320x320"),
        quota=8,
        feed=feed_dense_detector,
    ),
    Network(
        name="fasterrcnn_mobilenet_v3_large_fpn",
        build=dense("fasterrcnn_mobilenet_v3_large_fpn"),
        runs=images("4@800x1088"),
        quota=7,
        feed=feed_region_detector,
    ),
    Network(
        name="maskrcnn_resnet50_fpn_v2",
        build=dense("maskrcnn_resnet50_fpn_v2"),
        runs=images("2@1344x800"),
        quota=10,
        feed=feed_region_detector,
    ),
    Network(
        name="keypointrcnn_resnet50_fpn",
        build=dense("keypointrcnn_resnet50_fpn"),
        runs=images("1@768x1152"),
        quota=5,
        feed=feed_region_detector,
    ),
    Network(
        name="yolov8s",
        build=partial(YoloV8, width=32, classes=80),
        runs=images("16@640x640 1@384x640"),
        quota=17,
    ),
    Network(
        name="unet",
        build=partial(UNet, channels=1, classes=2, pad=0),
        runs=images("1@572x572", 1),
        quota=12,
    ),
    Network(
        name="unet_padded",
        build=partial(UNet, channels=3, classes=1, pad=1),
        runs=images("4@640x960 16@256x256"),
        quota=8,
    ),
    Network(
        name="csrnet",
        build=CsrNet,
        runs=images("1@576x768 8@384x512"),
        quota=9,
    ),
    Network(
        name="edsr_baseline_x2",
        build=Edsr,
        runs=images("16@48x48 1@339x510"),
        quota=5,
    ),
    Network(
        name="crnn",
        build=crnn,
        runs=images("64@32x100", 1),
        quota=7,
    ),
    Network(
        name="deep_speech2",
        build=deep_speech2,
        runs=images("32@161x800 1@161x1501", 1),
        quota=3,
    ),
    Network(
        name="stable_diffusion_unet",
        build=partial(diffusers.UNet2DConditionModel, **STABLE_DIFFUSION_UNET),
        runs=images("2@64x64 4@96x64", 4),
        quota=16,
        feed=feed_diffusion,
    ),
    Network(
        name="stable_diffusion_xl_unet",
        build=partial(diffusers.UNet2DConditionModel, **STABLE_DIFFUSION_XL_UNET),
        runs=images("2@128x128 8@104x152", 4),
        quota=6,
        feed=partial(feed_diffusion, text_embeds=(1280,), time_ids=(6,)),
    ),
    Network(
        name="stable_diffusion_vae",
        build=partial(diffusers.AutoencoderKL, **STABLE_DIFFUSION_VAE),
        runs=images("1@512x512 2@768x512"),
        quota=13,
    ),
)
VOLUMES = (
    Network(
        name="r3d_18",
        build=vision("r3d_18"),
        runs=images("16@16x112x112 1@16x112x112"),
        quota=7,
    ),
    Network(
        name="mc3_18",
        build=vision("mc3_18"),
        runs=images("8@16x112x112 32@8x112x112"),
        quota=8,
    ),
    Network(
        name="r2plus1d_18",
        build=vision("r2plus1d_18"),
        runs=images("8@16x112x112 2@32x112x112"),
        quota=10,
    ),
    Network(
        name="s3d",
        build=vision("s3d"),
        runs=images("4@64x224x224"),
        quota=8,
    ),
    Network(
        name="mvit_v2_s",
        build=vision("mvit_v2_s"),
        runs=images("8@16x224x224"),
        quota=6,
    ),
    Network(
        name="c3d",
        build=c3d,
        runs=images("30@16x112x112"),
        quota=6,
    ),
    Network(
        name="i3d",
        build=partial(I3d, classes=400),
        runs=images("8@64x224x224 1@64x224x224"),
        quota=11,
    ),
    Network(
        name="slowfast_r50",
        build=slowfast.create_slowfast,
        runs=images("8@32x224x224 1@32x256x256"),
        quota=13,
        feed=feed_slowfast,
    ),
    Network(
        name="x3d_m",
        build=partial(x3d.create_x3d, input_clip_length=16, input_crop_size=224),
        runs=images("16@16x224x224"),
        quota=9,
    ),
    Network(
        name="csn_r50",
        build=csn.create_csn,
        runs=images("8@32x224x224"),
        quota=6,
    ),
    Network(
        name="monai_unet3d",
        build=partial(monai_nets.UNet, **MONAI_UNET),
        runs=images("2@96x96x96", 1),
        quota=7,
    ),
    Network(
        name="vnet",
        build=partial(monai_nets.VNet, in_channels=1, out_channels=2),
        runs=images("1@128x128x64 2@128x128x64", 1),
        quota=9,
    ),
    Network(
        name="segresnet",
        build=partial(monai_nets.SegResNet, init_filters=16, in_channels=4, out_channels=3),
        runs=images("1@224x224x144 2@128x128x128", 4),
        quota=9,
    ),
    Network(
        name="nnunet_anisotropic",
        build=partial(monai_nets.DynUNet, **NNUNET_ANISOTROPIC),
        runs=images("2@20x320x256", 2),
        quota=9,
    ),
    Network(
        name="stable_video_diffusion_unet",
        build=diffusers.UNetSpatioTemporalConditionModel,
        runs=((1, 14, 8, 72, 128), (2, 25, 8, 72, 128)),
        quota=12,
        feed=feed_video_diffusion,
    ),
)
NETWORKS = (*CLASSIFIERS, *DENSE, *VOLUMES)
