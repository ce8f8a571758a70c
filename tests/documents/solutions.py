"""A solution of each exercise of the notebooks, as a reader would write it into the cell."""

SOLUTIONS = {
    ("tuning", 1): """
D = (hmm.initial @ hmm.transition) / hmm.initial
head = torch.linalg.pinv(hmm.emission.T).T @ (task / D)
""",
    ("tuning", 2): "fewest = 8",
    ("tuning", 3): "blind = [1.0, -1.0, 0.0, 0.0, 0.0]",
    ("tuning", 4): """
weighed = torch.tensor([0.5, 0.3, 0.2]) * torch.tensor([1.0, 0.5, 0.0])
state = weighed / weighed.sum()
""",
    ("tuning", 5): """
from triptych.theory.tuning import essential
prompt = essential.smallest_choice(wide, wide_task).double()
""",
    ("topics", 1): "share = (1 - 0.9 * 0.15) / 30 + 0.15 * 0.1 / 100",
    ("topics", 2): "least = 1 - 1 / 30",
    ("topics", 3): """
another = best.clone()
another[:, 0] += 1
another[:, 1] -= 1
""",
    ("topics", 4): "step = best[0, 1] - best[0, 10]",
    ("topics", 5): "rate = 1 / torch.linalg.eigvalsh(setting.moments.yy)[-1]",
    ("brackets", 1): "law = [0.25, 0.0, 0.25, 0.5]",
    ("brackets", 2): "stacks = sum(2**d for d in range(5))",
    ("brackets", 3): "text = '[([])]()'",
    ("brackets", 4): """
from triptych.models.constructions.balanced import balanced_scores
free = torch.randn(17, 17, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
scores = balanced_scores(2 * free, 2, 4)
""",
    ("brackets", 5): """
pairs = 1
while pumping.confusion(leaky, pump, stack, other, pairs, q=0.5).apart >= 1e-3:
    pairs *= 10
""",
    ("generation", 1): "strings = 2**8",
    ("generation", 2): "law = [0.25, 0.25, 0.5, 0.0]",
    ("generation", 3): "distance = (abs(1 / 4 - 1 / 3) * 2 + abs(1 / 2 - 1 / 3)) / 2",
    ("generation", 4): """
def may_go_on(bits):
    if any(a == b == 1 for a, b in zip(bits, bits[1:])):
        return False
    left = 6 - len(bits) - (bool(bits) and bits[-1] == 1)
    return sum(bits) % 2 == 0 or left >= 1
""",
    ("generation", 5): "options = (8, 1)",
    ("masking", 1): "up = 1 / (1 + 2.718281828 ** (-2 * 0.5))",
    ("masking", 2): """
import math
gap = 1 - (1 + math.tanh(0.5)) / 2
""",
    ("masking", 3): "blocks = [[0, 1], [1, 2], [3, 4], [4, 5], [0, 3], [1, 4], [2, 5]]",
    ("masking", 4): """
def ratio(J):
    return constant(Ising.grid(2, 3, J, 0.0)) / constant(Ising.grid(2, 3, 0.0, 0.0))
low, high = 0.0, 2.0
for _ in range(20):
    middle = (low + high) / 2
    low, high = (middle, high) if ratio(middle) < 10 else (low, middle)
coupling = low
""",
    ("masking", 5): """
smallest = next(k for k in range(1, 11) if steps(k) <= 20)
""",
    ("refinement", 1): "repeats = (law.marginals[1:] * law.marginals[:-1]).sum()",
    ("refinement", 2): """
p = law.marginals.clamp(min=1e-300)
each = -(p * p.log()).sum()
whole = -sum(w * math.log(w) for w in (0.4, 0.3, 0.3))
lost = each - whole
""",
    ("refinement", 3): """
low, high = 0.0, 1.0
for _ in range(30):
    middle = (low + high) / 2
    there = TranslationWorld.orders(agreement=middle, words=4).translations(0)
    low, high = (middle, high) if there.total_correlation() < 0.5 else (low, middle)
agreement = low
""",
    ("refinement", 4): """
refiner = ideal_refiner(truth, right=0.5).refiner
mixed = quality(output_laws(refiner, steps=3)[-1], truth, one_way).mixed
""",
    ("refinement", 5): "taught = law.distilled()",
}
