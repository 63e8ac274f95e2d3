"""Deep Q-learning: the baselines FedAvg-DQN and Distillation FedDQN."""
