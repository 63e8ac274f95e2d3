"""Worlds of Q-learning: CartPole-v1, Acrobot-v1, MountainCar-v0, LunarLander-v3."""
