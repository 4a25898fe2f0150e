"""Vectors as NumPy arrays, for tests that compute by hand what clients and strategies send."""

import dataclasses

import torch

from fedpriv.federation import messages
from fedpriv.federation.secagg.messages import MASKED, words_of
from fedpriv.privacy.clipping import clip
from fedpriv.runtime.vectors import ParameterLayout, as_tensor
from fedpriv.runtime.vectors import on_host as on_host


def to_vectors(record):
    """The arrays of a record, by name."""
    return {
        name: words_of(vector) if name == MASKED else on_host(vector)
        for name, vector in messages.to_vectors(record).items()
    }


def read(layout_or_model):
    """The tensors of a model that travel, as flat arrays."""
    layout = layout_or_model
    if isinstance(layout, torch.nn.Module):
        layout = ParameterLayout(layout)
    return {name: on_host(vector).copy() for name, vector in layout.read().items()}


def tensors(vectors):
    """Arrays by name as tensors over copies."""
    return {name: as_tensor(vector.copy()) for name, vector in vectors.items()}


def encode(ring, values):
    """An array as unmasked words."""
    return ring.encode(as_tensor(values))


def on_arrays(function):
    """A function of vectors as one of arrays: of its first argument, and of what it returns."""

    def called(array, *arguments, **settings):
        return on_host(function(as_tensor(array), *arguments, **settings))

    return called


def clip_array(array, clip_norm):
    """`clip` of an array; what was clipped is an array, and the same one if it stays."""
    vector = as_tensor(array)
    result = clip(vector, clip_norm)
    same = result.clipped is vector
    return dataclasses.replace(result, clipped=array if same else on_host(result.clipped))
