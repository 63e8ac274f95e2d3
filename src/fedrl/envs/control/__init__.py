"""Worlds of policy gradients: CartPole, MuJoCo, random MDPs."""
