"""Are trained embeddings and value matrices block-wise by topic, and when diagonal?"""
