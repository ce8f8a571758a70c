"""Topics of real text in the embeddings and attention of pretrained models."""
