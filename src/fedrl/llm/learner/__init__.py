"""The learner on a GPU: a packed forward and backward pass of models of the Llama kind."""
