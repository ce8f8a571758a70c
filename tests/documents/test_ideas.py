"""The ideas of ARCHITECTURE.md are true as written: one training step, one door of randomness."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "triptych"
DRAWS = re.compile(
    r"torch\.(rand|randn|randint|randperm|multinomial|bernoulli|normal)\b|np\.random|RandomState"
    r"|default_rng|nn\.init\.|\.(uniform_|normal_|exponential_|random_|bernoulli_)\(|hashed_uniform\("
)


def files_with(pattern, *, studies=True):
    return {
        str(file.relative_to(SRC))
        for file in SRC.rglob("*.py")
        if pattern.search(file.read_text("utf-8"))
        and (studies or file.relative_to(SRC).parts[0] not in ("studies", "lab"))
    }


def test_one_training_step():
    assert files_with(re.compile(r"\.backward\(\)")) == {"training/step.py"}
    optimisers = files_with(re.compile(r"torch\.optim\.(Adam|SGD|AdamW|Adafactor)\b"))
    assert optimisers == {"training/step.py"}


def test_what_goes_around_the_door_is_named():
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    section = text.split("### Around the door")[1].split("\n## ")[0]
    named = set(re.findall(r"`([a-z_/]+\.py)`", section))
    assert named == files_with(DRAWS, studies=False)
