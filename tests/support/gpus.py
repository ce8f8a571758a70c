"""A machine with some GPUs, or with none, as torch would describe it."""

import torch


def pretend(monkeypatch, count):
    """torch says that this machine has `count` GPUs; nothing can be computed on them."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda i: f"GPU {i}")
