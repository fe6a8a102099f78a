"""From images to views, on the device: batched random changes with other parameters for each sample."""

from entrec.views.augment import Augment
from entrec.views.ops import blur, colour_jitter, flip, grey, normalise, random_resized_crop, solarise
from entrec.views.recipe import Crop, Look, Recipe, RecipeName, View, recipe

__all__ = [
    "Augment",
    "Crop",
    "Look",
    "Recipe",
    "RecipeName",
    "View",
    "blur",
    "colour_jitter",
    "flip",
    "grey",
    "normalise",
    "random_resized_crop",
    "recipe",
    "solarise",
]
