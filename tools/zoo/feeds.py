"""How a model is run once on inputs of given shapes; a zoo entry names one of these functions.

Each takes the model and the shape that the zoo's run gives (batch first). Parts of a model that hold no convolution,
such as box decoding, are left out where they look at values: on the meta device there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Shape = tuple[int, ...]
Feed = Callable[[Any, Shape], object]


def dense_detector(model: Any, shape: Shape) -> object:
    """Run backbone and head of a one-stage detector."""
    features = model.backbone(torch.empty(shape))
    return model.head(list(features.values()))


def region_detector(model: Any, shape: Shape, regions: int = 100) -> object:
    """Run backbone, region proposal head and the convolutional heads on ``regions`` boxes an image."""
    features = list(model.backbone(torch.empty(shape)).values())
    boxes = shape[0] * regions
    channels = features[0].shape[1]
    heads = model.roi_heads
    model.rpn.head(features)
    if isinstance(heads.box_head, torch.nn.Sequential):
        heads.box_head(torch.empty(boxes, channels, 7, 7))
    for head, predictor in (
        (heads.mask_head, heads.mask_predictor),
        (heads.keypoint_head, heads.keypoint_predictor),
    ):
        if head is not None:
            predictor(head(torch.empty(boxes, channels, 14, 14)))
    return features


def text_diffusion(model: Any, shape: Shape) -> object:
    """Run a latent diffusion U-Net with 77 text tokens, and what its configuration asks for besides."""
    batch = shape[0]
    conditions = torch.empty(batch, 77, model.config.cross_attention_dim)
    extra = {}
    if getattr(model.config, "addition_embed_type", None) == "text_time":
        added = {"text_embeds": torch.empty(batch, 1280), "time_ids": torch.empty(batch, 6)}
        extra["added_cond_kwargs"] = added
    return model(torch.empty(shape), torch.empty(()), conditions, **extra)


def control_net(model: Any, shape: Shape) -> object:
    """Run a ControlNet on latents and an image of eight times their size."""
    batch, _, height, width = shape
    conditions = torch.empty(batch, 77, model.config.cross_attention_dim)
    return model(torch.empty(shape), torch.empty(()), conditions, torch.empty(batch, 3, 8 * height, 8 * width))


def slowfast(model: Any, shape: Shape, ratio: int = 4) -> object:
    """Run both pathways: the fast one sees every frame of ``shape``, the slow one every ``ratio``-th."""
    batch, channels, frames, *extents = shape
    return model([torch.empty(batch, channels, frames // ratio, *extents), torch.empty(shape)])


def encoder(model: Any, shape: Shape) -> object:
    """Run only the encoder of a model, where its convolutions are."""
    part = model.get_encoder() if hasattr(model, "get_encoder") else model.encoder
    return part(torch.empty(shape))


FEEDS: dict[str, Feed] = {
    # A batch of images, volumes or signals; by name; or N x length tokens.
    "image": lambda model, shape: model(torch.empty(shape)),
    "pixels": lambda model, shape: model(pixel_values=torch.empty(shape)),
    "tokens": lambda model, shape: model(torch.zeros(shape, dtype=torch.long)),
    # Two images to compare.
    "pair": lambda model, shape: model(torch.empty(shape), torch.empty(shape)),
    # Parts of a model: its encoder, the image tower beside text, the halves of an autoencoder.
    "encoder": encoder,
    "vision_part": lambda model, shape: model.get_image_features(pixel_values=torch.empty(shape)),
    "encode": lambda model, shape: model.encode(torch.empty(shape)),
    "decoder": lambda model, shape: model.decode(torch.empty(shape)),
    "dense_detector": dense_detector,
    "region_detector": region_detector,
    # Denoisers, which take latents and a time; monai's take one time an image.
    "diffusion": lambda model, shape: model(torch.empty(shape), torch.empty(())),
    "conditioned": lambda model, shape: model(torch.empty(shape), torch.empty(shape[0])),
    "text_diffusion": text_diffusion,
    "control_net": control_net,
    # Stable Video Diffusion's U-Net, of N x frames x 8 x H x W latents.
    "video_diffusion": lambda model, shape: model(
        torch.empty(shape), torch.empty(()), torch.empty(shape[0], 1, 1024), torch.empty(shape[0], 3)
    ),
    "slowfast": slowfast,
}
"""By the name that the zoo file uses."""
