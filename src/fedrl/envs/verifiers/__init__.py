"""Environments of the package `verifiers` as text worlds: the policy's side of a rollout, the world."""
