"""One mode for sampler, learner and reference: a model with dropout learns from what it said."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "fedrl[llm]"')
pytest.importorskip("transformers", reason='needs transformers: pip install "fedrl[llm]"')

from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

from fedrl.llm import lora
from fedrl.llm.generation.hf import HFSampler
from fedrl.llm.model_setup import checkpoint_activations
from fedrl.llm.rl import anchored_momentum, ppo
from fedrl.llm.rl.batches import Batching
from fedrl.llm.rl.loss import Loss
from fedrl.llm.rl.policy_gradient import update
from fedrl.llm.rollout import Sample

pytestmark = pytest.mark.slow

WORDS = 40


def gpt2():
    config = GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3,
        resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


def opt():
    """Drops inside the layers' own code, and whole layers too."""
    config = OPTConfig(
        vocab_size=WORDS, max_position_embeddings=64, hidden_size=32, num_hidden_layers=2,
        ffn_dim=64, num_attention_heads=2, init_std=0.3, dropout=0.1, attention_dropout=0.1,
        layerdrop=0.1, word_embed_proj_dim=32, pad_token_id=0, bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    return OPTForCausalLM(config).eval()


@pytest.fixture(params=[gpt2, opt], ids=["gpt2", "opt"])
def model(request):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return request.param()


def said(model) -> list[Sample]:
    """Answers of the model itself."""
    prompts = [[2 + (3 * i + j) % (WORDS - 2) for j in range(2 + i % 5)] for i in range(24)]
    answers = HFSampler(model, [1], 1).generate(prompts, 6, 1.0, torch.Generator().manual_seed(0))
    together = zip(prompts, answers.tokens, answers.logprobs, strict=True)
    return [Sample(i, 0, p, a, x, "") for i, (p, a, x) in enumerate(together)]


def learned(model, samples, reference=None, also=None) -> dict[str, float]:
    """An epoch of several minibatches that moves nothing."""
    still = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.0)
    torch.manual_seed(1)
    return update(
        model, still, samples, [1.0, -1.0] * 12, Loss(0.2, 0.1, 0.0),
        Batching(0, 8, 4, 1.0, torch.Generator().manual_seed(0)), reference, critic_loss=also,
    )  # fmt: skip


@pytest.mark.parametrize("sparing", [False, True], ids=["", "saving memory"])
@pytest.mark.parametrize("adapters", [False, True], ids=["", "adapters"])
def test_before_the_first_step_every_ratio_is_one(model, sparing, adapters):
    reference = copy.deepcopy(model)
    if adapters:
        pytest.importorskip("peft", reason="LoRA needs peft")
        model = reference = lora.with_adapters(model, lora.Adapters(2, 4))
    if sparing:
        checkpoint_activations(model)
    found = learned(model, said(model), reference)
    assert found["ratio_far"] == 0
    assert found["drift"] == pytest.approx(0, abs=1e-5)
    assert found["kl"] == pytest.approx(0, abs=1e-6)
    assert found["gradient_norm"] > 0.01


def test_whatever_mode_the_model_comes_in(model):
    samples = said(model)
    assert learned(model.train(), samples)["ratio_far"] == 0
    assert not model.training


def test_the_critic_sees_what_it_valued(model):
    ppo.add_value_head(model)
    with torch.no_grad():
        model.value.weight.normal_(generator=torch.Generator().manual_seed(2))
    samples = said(model)
    before = ppo.sample_values(model, samples, 0, 8)

    def gap(hidden, numbers):
        now = ppo.state_values(model, hidden)
        torch.testing.assert_close(
            now.detach(), torch.tensor(before[numbers], dtype=now.dtype), rtol=1e-4, atol=1e-5
        )
        return 0.0 * now

    learned(model, samples, also=gap)


def test_the_anchored_weights_are_one_where_nothing_moved(model):
    samples, previous = said(model), copy.deepcopy(model)
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    u = [torch.zeros_like(p) for p in model.parameters()]
    found, _ = anchored_momentum.update(
        model, still, samples, [1.0, -1.0] * 12, anchored_momentum.Anchor(previous, u, 0.5, 1.01),
        Batching(0, 8, 4, 1.0, torch.Generator().manual_seed(0)),
    )  # fmt: skip
    assert found["weight_mean"] == pytest.approx(1, abs=1e-4)
    assert found["weight_clipped"] == 0
