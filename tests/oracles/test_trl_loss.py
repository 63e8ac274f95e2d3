"""Loss and gradient of the policy gradient against TRL's GRPO trainer."""

from __future__ import annotations

import copy
import math

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
pytest.importorskip("transformers", reason='needs transformers: pip install "fedrl[llm]"')

from support.learning import close, learned, one_by_one, some_advantages
from support.tiny_model import nudged, samples, tiny
from torch import Tensor, nn

from fedrl.llm.rl.loss import Loss
from fedrl.llm.rollout import Sample

pytestmark = pytest.mark.slow


def on_sides(batch: list[Sample], reference: nn.Module, temperature: float) -> dict[str, Tensor]:
    """TRL's inputs: prompts padded on the left, answers on the right."""
    before = max(len(s.prompt) for s in batch)
    after = max(len(s.answer) for s in batch)

    def left(values: list, fill: float) -> list:
        return [fill] * (before - len(values)) + values

    def right(values: list, fill: float) -> list:
        return values + [fill] * (after - len(values))

    inputs = {
        "prompt_ids": [left(s.prompt, 0) for s in batch],
        "prompt_mask": [left([1] * len(s.prompt), 0) for s in batch],
        "completion_ids": [right(s.answer, 0) for s in batch],
        "completion_mask": [right([1] * len(s.answer), 0) for s in batch],
        "old_per_token_logps": [right(s.logprobs, 0.0) for s in batch],
        "ref_per_token_logps": [
            right(one_by_one(reference, s, temperature).tolist(), 0.0) for s in batch
        ],
    }
    return {name: torch.tensor(values) for name, values in inputs.items()}


@pytest.mark.parametrize(
    ("loss_type", "average", "bonus"),
    # TRL takes the entropy's mean over tokens whatever the loss: the two part by sequence.
    [("bnpo", "token", 0.05), ("dapo", "token", 0.05), ("grpo", "sequence", 0.0)],
)
def test_loss_and_gradient_are_those_of_trl(loss_type, average, bonus, tmp_path):
    pytest.importorskip("datasets", reason="the oracle needs TRL and datasets")
    trl = pytest.importorskip("trl", reason="the oracle needs TRL")
    from datasets import Dataset

    from fedrl.llm.builtin_tokenizers import entity_tokenizer

    model, temperature, kl = tiny(), 0.8, 0.3
    reference, batch = nudged(model, 0.1, seed=5), samples(7, seed=2)
    advantages = some_advantages(len(batch))
    for sample in batch:  # some ratios inside the clip, some far outside on either side
        logs = one_by_one(model, sample, temperature)
        sample.logprobs = [x + 0.3 * math.sin(7 * i) for i, x in enumerate(logs.tolist())]

    config = trl.GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], loss_type=loss_type,
        beta=0.0, epsilon=0.2, temperature=temperature, entropy_coef=bonus, num_generations=2,
        per_device_train_batch_size=2, gradient_checkpointing=False,
        use_bias_correction_kl=False,  # the papers' loss term is k3 alone, without the ratio
    )  # fmt: skip
    theirs = trl.GRPOTrainer(
        copy.deepcopy(model),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        processing_class=entity_tokenizer(["a b c d e f g h i"]),
    )
    theirs.beta = kl  # set late: asking for it above makes TRL look for a reference model by name
    inputs = on_sides(batch, reference, temperature) | {
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": torch.tensor(sum(len(s.answer) for s in batch)),
    }
    theirs.model.eval()
    expected = theirs._compute_loss(theirs.model, inputs)
    expected.backward()

    weights = Loss(0.2, kl, bonus, temperature, average)
    found, gradient = learned(model, batch, advantages, weights, 3, reference=reference)
    assert 0.1 < found["ratio_far"] < 0.9
    assert found["loss"] == pytest.approx(float(expected.detach()), rel=1e-5)
    close(gradient, [p.grad for p in theirs.model.parameters()], 1e-5)
