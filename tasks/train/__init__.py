"""The training loop: replica step, checkpoints, timing."""
