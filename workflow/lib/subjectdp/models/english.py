"""Fixed features of text, learned only from a public text: the King James Bible (1611), which holds no Shakespeare.

The weights come with the package (``weights/english.safetensors``). ``python -m benchmarks.pretrain --text`` of commit
d061a81 made them: a small network learns to predict the next character of the text. They depend on no protected data,
so the features cost no privacy and are computed once.
"""

from torch import Tensor, nn

from subjectdp.errors import ModelError, expected
from subjectdp.models.fixed import FixedFeatureModel
from subjectdp.models.handwriting import WEIGHTS, PublicFeatures, load_weights

ENGLISH = WEIGHTS.with_name("english.safetensors")
ENGLISH_SHA256 = "597ec9a5189fa92aee69371cc1e4da4f9b8814f0abf5a3ccab469b26a515cc8b"

VOCABULARY = 80  # LEAF's symbols
SEEN = 12  # characters before the predicted one that the network reads
OUTPUTS = 128
WIDTH = OUTPUTS + 1
CONSTANT = 0.3  # the last feature, in place of a bias
_EMBEDDING, _HIDDEN = 24, 384


class EnglishNet(nn.Module):
    """Characters int64 (B, at least SEEN) to (B, OUTPUTS), each row normalised to mean 0 and variance 1."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, _EMBEDDING)
        first, second = nn.Linear(SEEN * _EMBEDDING, _HIDDEN), nn.Linear(_HIDDEN, OUTPUTS)
        self.layers = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

    def forward(self, characters: Tensor) -> Tensor:
        outputs: Tensor = self.layers(self.embedding(characters[:, -SEEN:]).flatten(1))
        return nn.functional.layer_norm(outputs, (OUTPUTS,))


def english_head(classes: int, shape: tuple[int, ...], from_public: bool) -> FixedFeatureModel:
    """A head on 129 features learned from public English; 10,320 weights for LEAF's 80 symbols.

    ``from_public``: the head starts from the network's own, which is as public as the features; otherwise from zero.
    Raises ModelError for another vocabulary or windows that are too short.
    """
    if classes != VOCABULARY or shape[0] < SEEN:
        found = f"{classes} symbols, windows of {shape[0]}"
        allowed = f"{VOCABULARY} symbols and windows of at least {SEEN} for this model"
        raise expected("the text", found, allowed, ModelError)
    tensors = load_weights(ENGLISH, ENGLISH_SHA256)
    start = tensors["head"].float() if from_public else None
    return FixedFeatureModel(PublicFeatures(EnglishNet, tensors, CONSTANT), WIDTH, classes, start)
