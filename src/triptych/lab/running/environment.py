"""What this machine is: for bug reports and for the record of every run."""

import importlib.metadata
import os
import platform

import torch

from triptych import __version__

_PACKAGES = ("numpy", "scipy", "jaxtyping")


def environment() -> dict[str, str]:
    """Versions, device and threads, as strings."""
    facts = {"triptych": __version__, "python": platform.python_version()}
    facts["torch"] = str(torch.__version__)  # with its build, as in 2.11.0+cu130
    facts |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    facts["system"] = f"{platform.system()} {platform.machine()}"
    facts["cores"] = str(os.cpu_count())
    facts["threads"] = str(torch.get_num_threads())
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    facts["gpu"] = ", ".join(gpus) if gpus else "none"
    return facts
