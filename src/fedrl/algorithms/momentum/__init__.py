"""PAvg, FedSVRPG-M and FedHAPG-M: policy gradients with an anchored direction."""
