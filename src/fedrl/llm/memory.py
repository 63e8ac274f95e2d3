"""Bytes that a model of some shape takes while it plays and learns: one formula for the estimate
before a run and for how a run cuts its passes.

P parameters; d width, h query and k key-value heads of size s, f inner width, L layers, V
vocabulary. A GPU computes in bfloat16 (c = 2 bytes), a CPU in float32 (c = 4).

What the packed learner (`learner.layer`) keeps per token and layer for the way back:

    4 · 2 d              the residual stream before attention and before the MLP
    c (h s + 2 k s)      q, k and v
    c h s + 4 h          attention's result and its log-sum-exp
    c 2 f                the MLP's inner values

A layer computed again (`save_memory`) keeps 4 d instead, and one layer is there in full. On top,
per token: 4 · 2 d for the last norm. The way back passes two heights, the vocabulary's and then a
layer's, of which the larger counts (`backward_height`):

    the vocabulary   logits in parts of CHUNK (single precision, and their gradient in half), the
                     output layer's copy c V d and, if it is trained, its gradient twice, 8 V d
    a layer          c (4 f + 3 d) + 8 d per token, and the output layer's gradient, 4 V d, which
                     waits for the embedding's where both are one

Of all other models, and on a CPU, transformers' layers keep more (`padded_bytes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedrl.llm.learner.vocabulary import chunk_rows
from fedrl.llm.model_types import ModelConfig

SINGLE, HALF = 4, 2
"""Bytes of a number."""


class Calibration(NamedTuple):
    """What only a measurement says (`benchmarks/llm.py memory` prints estimates beside peaks)."""

    context: int = 900_000_000  # CUDA's own, which PyTorch does not count: 0.87 GB on an H200
    activations: float = 1.0  # measured over counted
    reading: float = 1.0


CALIBRATION = Calibration()

PASS_WORK = 4.5e12
"""Parameters × tokens of a learner's pass that keep a large GPU busy while the next is launched."""
PASS_TOKENS = (4096, 32_768)
"""The least and the most tokens of such a pass."""
READ_BYTES = 2**30
"""Scratch memory of a pass over prompts."""
READ_TOKENS = (8192, 65_536)


class Shape(NamedTuple):
    layers: int
    width: int
    heads: int
    kv: int
    size: int
    inner: int
    vocabulary: int


def shape_of(config: ModelConfig) -> Shape:
    """Of any causal model's configuration; what it does not name has the usual size."""
    heads, width = config.num_attention_heads, config.hidden_size
    return Shape(
        layers=config.num_hidden_layers,
        width=width,
        heads=heads,
        kv=getattr(config, "num_key_value_heads", None) or heads,
        size=getattr(config, "head_dim", None) or width // heads,
        inner=getattr(config, "intermediate_size", None) or 4 * width,
        vocabulary=config.vocab_size,
    )


def pass_tokens(parameters: int) -> int:
    """Most tokens of a packed learner's forward pass, wherever it runs."""
    least, most = PASS_TOKENS
    return min(max(int(PASS_WORK / parameters), least), most)


def read_tokens(shape: Shape) -> int:
    """Most prompt tokens of a sampler's pass."""
    least, most = READ_TOKENS
    return min(max(READ_BYTES // reading_bytes(shape), least), most)


def reading_bytes(shape: Shape) -> int:
    """Per prompt token: the stream, q k v, attention's result, inner values and their product."""
    d, q, kv = shape.width, shape.heads * shape.size, shape.kv * shape.size
    return HALF * (2 * d + 2 * q + 4 * kv + 3 * shape.inner)


def packed_bytes(shape: Shape, number: int, again: bool) -> int:
    """Per token that the packed learner keeps for the way back."""
    d, q, kv = shape.width, shape.heads * shape.size, shape.kv * shape.size
    layer = SINGLE * (2 * d + shape.heads) + number * (2 * q + 2 * kv + 2 * shape.inner)
    whole = SINGLE * d * shape.layers + layer if again else shape.layers * layer
    return whole + SINGLE * 2 * d


def backward_bytes(shape: Shape, number: int) -> int:
    """Per token at the height of one layer's way back, beside what is kept."""
    return number * (4 * shape.inner + 3 * shape.width) + 2 * SINGLE * shape.width


def adapter_bytes(shape: Shape, number: int, rank: int) -> int:
    """What the packed learner makes of adapters on all linear layers for a pass: those of one input
    below each other, B in blocks of which only each layer's own are not zero."""
    d, q, kv, f = shape.width, shape.heads * shape.size, shape.kv * shape.size, shape.inner
    inputs = ((3, d, q + 2 * kv), (1, q, d), (2, d, 2 * f), (1, f, d))  # layers, in, out
    return number * rank * shape.layers * sum(n * (below + above) for n, below, above in inputs)


def vocabulary_bytes(shape: Shape, number: int, trained: bool, answers: int) -> int:
    """Of so many answer tokens in a pass."""
    weight = shape.vocabulary * shape.width
    parts = (SINGLE + number) * min(answers, chunk_rows(shape.vocabulary)) * shape.vocabulary
    return parts + (number if number < SINGLE else 0) * weight + trained * 2 * SINGLE * weight


def backward_height(shape: Shape, number: int, trained: bool, tokens: int, answers: int) -> int:
    """What the way back of so many tokens holds beside what was kept for it."""
    waiting = trained * SINGLE * shape.vocabulary * shape.width
    layer = tokens * backward_bytes(shape, number) + waiting
    return max(vocabulary_bytes(shape, number, trained, answers), layer)


def padded_bytes(
    shape: Shape, number: int, again: bool, norms: bool, targets: Sequence[str] = ()
) -> int:
    """Per token that transformers' layers keep for the way back; `targets` alone have adapters.

        both norms   4 · 2 d      inputs in float32, and 4 · 2 d what they became, if they learn
        attention    c (d + 2 h s + 2 k s)     input of the projections, q, the result, k and v
        MLP          c (d + 4 f)               its input; gate, its activation, up, their product

    With LoRA on some layers alone, inputs of the others are not kept: d without q, k and v, d
    without gate and up, f of the product without down.
    """

    def trained(*layers: str) -> bool:
        ends = {target.rpartition(".")[2] for target in targets}
        return not targets or bool(ends.intersection(layers))

    d, q, kv = shape.width, shape.heads * shape.size, shape.kv * shape.size
    inputs = d * trained("q_proj", "k_proj", "v_proj") + d * trained("gate_proj", "up_proj")
    inner = (4 if trained("down_proj") else 3) * shape.inner
    layer = SINGLE * (4 if norms else 2) * d + number * (inputs + 2 * q + 2 * kv + inner)
    whole = SINGLE * d * shape.layers + layer if again else shape.layers * layer
    return whole + SINGLE * 2 * d


def cache_bytes(shape: Shape, rows: int, length: int, number: int) -> int:
    """Keys and values of so many rows."""
    return 2 * number * shape.layers * shape.kv * shape.size * rows * length
