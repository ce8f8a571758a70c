"""The ways of completing prompts that the tables compare, the most decisive first."""

from triptych.studies.generation.code_cases.rows import Config, Sizes

BEST = (0.95, 1.0)  # top_p and temperature of the thesis' best baseline
GROUPS = (BEST, (1.0, 1.0), (1.0, 1.2))  # of Table 3.6
QUOTA = STRIDE = 4
LARGER = 10  # quota or stride
CAUTIOUS, DEFAULT = 0.1, 0.5  # thresholds
CANDIDATES = (2, 4, 8)
VERIFIERS = "verifiers"  # instead of a configuration: how well they predict errors


def named(top_p: float, temperature: float, *, names: str = "random") -> str:
    """Sampling without a verifier."""
    other = "" if names == "random" else f", {names} names"
    return f"sampling p={top_p:g} T={temperature:g}{other}"


def guided(top_p: float, temperature: float, *more: str) -> str:
    """Algorithm 1 with Q = B = 4, threshold 0.1, a linear verifier and random names, or `more`."""
    return ", ".join([f"Algorithm 1 p={top_p:g} T={temperature:g}", *more])


def configurations(sizes: Sizes) -> dict[str, Config]:
    """All of them, by name."""
    found: dict[str, Config] = {}

    def add(config: str, **fields: object) -> None:
        given = {"top_p": BEST[0], "temperature": BEST[1], **fields}
        found[config] = Config(config=config, **given)  # pyright: ignore[reportArgumentType]

    def algorithm_1(*more: str, at: tuple[float, float] = BEST, **fields: object) -> None:
        """With a linear verifier on the chosen layer, or other fields; `more` names these."""
        given = {
            "quota": QUOTA,
            "stride": STRIDE,
            "threshold": CAUTIOUS,
            "verifier": "probe",
            "layer": sizes.layer,
            "depth": 1,
        }
        top_p, temperature = at
        add(
            guided(top_p, temperature, *more),
            method="backtracking",
            top_p=top_p,
            temperature=temperature,
            **(given | fields),
        )

    for at in GROUPS:  # Table 3.6, first what needs no trained verifier: these take a while
        add(named(*at), method="sampling", top_p=at[0], temperature=at[1])
    for quota in (QUOTA, LARGER):  # Table 3.12
        more = ("rule",) if quota == QUOTA else ("rule", "Q=10")
        algorithm_1(*more, verifier="rule", layer=None, depth=None, quota=quota)
    algorithm_1("random verifier", verifier="random", layer=None, depth=None)  # Tables 3.9, 3.11
    add(named(*BEST, names="meaningful"), method="sampling", names="meaningful")  # Table 3.15
    for at in GROUPS:  # Table 3.6
        algorithm_1(at=at)
    for n in CANDIDATES:
        add(
            f"best of {n} lines",
            method="blocks",
            n=n,
            verifier="probe",
            layer=sizes.layer,
            depth=1,
            level="line",
        )
    for at in GROUPS:  # Table 3.10
        algorithm_1("threshold 0.5", at=at, threshold=DEFAULT)
    algorithm_1("B=10", at=(1.0, 1.0), stride=LARGER)
    algorithm_1("B=10", "threshold 0.5", at=(1.0, 1.0), stride=LARGER, threshold=DEFAULT)
    algorithm_1("meaningful names", names="meaningful")  # Table 3.15
    algorithm_1("meaningful names", "threshold 0.5", names="meaningful", threshold=DEFAULT)
    algorithm_1("no redo", redo_argmax=False)  # Table 3.17
    algorithm_1("no redo", "threshold 0.5", redo_argmax=False, threshold=DEFAULT)
    for layer in sizes.layers:  # Table 3.9
        if layer != sizes.layer:
            algorithm_1(f"layer {layer}", layer=layer)
    for depth in sizes.depths:  # Table 3.11
        algorithm_1(f"depth {depth}", depth=depth)
    algorithm_1("Q=10", quota=LARGER)
    algorithm_1("B=10", stride=LARGER)
    algorithm_1("redone tokens verified", verify_redone=True)
    add(named(0.0, 1.0), method="sampling", top_p=0.0, temperature=1.0)
    if sizes.beyond:
        algorithm_1("distinct rule", verifier="distinct rule", layer=None, depth=None)
        probe = {"verifier": "probe", "layer": sizes.layer, "depth": 1}
        for n in (2, 4):
            add(f"{n} particles", method="particles", n=n, **probe)
    if sizes.walks:
        add("VGB", method="vgb", verifier="probe", layer=sizes.layer, depth=1)
    for top_p in sizes.top_ps:  # Table 3.13
        for temperature in sizes.temperatures:
            if named(top_p, temperature) not in found:
                add(
                    named(top_p, temperature),
                    method="sampling",
                    top_p=top_p,
                    temperature=temperature,
                )
    return found
