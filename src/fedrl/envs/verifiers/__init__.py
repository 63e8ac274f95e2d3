"""Environments of the package `verifiers` as text worlds."""
