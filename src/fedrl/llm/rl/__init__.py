"""Advantages, losses and optimiser steps of language agents."""
