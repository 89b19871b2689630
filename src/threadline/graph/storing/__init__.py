"""What a run stores: checkpoints and writes in order, under the names that both engines know."""
