"""Chunks of prompts over processes: here, worker processes, or the actors of a Ray cluster.

Every engine yields `Started` and `Ended` for each chunk, as the engines of studies do, and stops
all that is still running when it is closed. Each worker loads the model once. A chunk whose Ray
machine is lost is tried again elsewhere; one whose local process died has failed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from triptych.core.validation import UserError
from triptych.lab.generating.completing import Chunk, complete_chunk, release
from triptych.lab.running.engines.local import run_locally
from triptych.lab.running.engines.ray import MAX_ATTEMPTS, POLL_S, connect, import_ray
from triptych.lab.running.items import Ended, Started, UnitEvent

ENGINES = ("inline", "local", "ray")


class Lost(NamedTuple):
    """An actor is gone, and what it did with it."""

    reason: str


@runtime_checkable
class Cluster(Protocol):
    """Where actors run. An actor holds a model and completes one chunk after the other."""

    def start(self) -> Any:
        """A new actor."""
        ...

    def submit(self, actor: Any, chunk: Chunk) -> Any:
        """Give an actor a chunk; what comes back stands for the result."""
        ...

    def wait(self, pending: Sequence[Any]) -> Sequence[Any]:
        """Those that are ready; perhaps none, after a while."""
        ...

    def result(self, ready: Any) -> Ended | Lost: ...

    def stop(self, actor: Any) -> None: ...


def run_inline(chunks: Sequence[Chunk]) -> Iterator[UnitEvent]:
    """Complete the chunks in this process, one after the other."""
    try:
        for chunk in chunks:
            yield Started(chunk.key)
            yield complete_chunk(chunk)
    finally:
        release()


def run_in_processes(chunks: Sequence[Chunk], workers: int) -> Iterator[UnitEvent]:
    """Complete the chunks in worker processes on this machine."""
    return run_locally(chunks, workers, None, complete_chunk)


def run_on_ray(chunks: Sequence[Chunk], workers: int, address: str | None) -> Iterator[UnitEvent]:
    """Complete the chunks on the actors of a Ray cluster, which is started here if none is named.

    Other machines need this package, and the model and the rule under the same paths.
    """
    ray = import_ray()
    ours = not ray.is_initialized()
    if ours:
        connect(ray, address, None if address else workers)
    try:
        on_gpu = any(chunk.device.startswith("cuda") for chunk in chunks)
        if on_gpu and not ray.cluster_resources().get("GPU"):
            raise UserError("device cuda was asked for, but the Ray cluster has no GPU")
        yield from run_on_actors(chunks, workers, RayCluster(ray, on_gpu))
    finally:
        if ours:
            ray.shutdown()


def run_on_actors(chunks: Sequence[Chunk], workers: int, cluster: Cluster) -> Iterator[UnitEvent]:
    """Complete the chunks on up to `workers` actors.

    A chunk whose actor is lost goes to the end of the queue, `MAX_ATTEMPTS` times in all.
    """
    queue = deque((chunk, 1) for chunk in chunks)
    idle: list[Any] = []
    busy: dict[Any, tuple[Any, Chunk, int]] = {}
    try:
        while queue or busy:
            while queue and len(busy) < workers:
                actor = idle.pop() if idle else cluster.start()
                chunk, attempt = queue.popleft()
                if attempt == 1:
                    yield Started(chunk.key)
                busy[cluster.submit(actor, chunk)] = (actor, chunk, attempt)
            for ready in cluster.wait(list(busy)):
                actor, chunk, attempt = busy.pop(ready)
                outcome = cluster.result(ready)
                if isinstance(outcome, Ended):
                    idle.append(actor)
                    yield outcome
                elif attempt < MAX_ATTEMPTS:
                    cluster.stop(actor)
                    queue.append((chunk, attempt + 1))
                else:
                    cluster.stop(actor)
                    tried = f"{outcome.reason} (tried {attempt} times)"
                    yield Ended(chunk.key, None, tried, 0.0)
    finally:
        for actor in [*idle, *(actor for actor, _, _ in busy.values())]:
            cluster.stop(actor)


class RayCluster:
    """Actors on the machines of a Ray cluster, each with one CPU, and a GPU where one is asked."""

    def __init__(self, ray: Any, on_gpu: bool) -> None:
        self._ray = ray
        self._actor = ray.remote(num_cpus=1, num_gpus=int(on_gpu), max_restarts=0)(_Actor)

    def start(self) -> Any:
        return self._actor.remote()

    def submit(self, actor: Any, chunk: Chunk) -> Any:
        return actor.complete.remote(tuple(chunk))

    def wait(self, pending: Sequence[Any]) -> Sequence[Any]:
        return self._ray.wait(list(pending), num_returns=1, timeout=POLL_S)[0]

    def result(self, ready: Any) -> Ended | Lost:
        try:
            return Ended(*self._ray.get(ready))
        except self._ray.exceptions.RayError as error:
            return Lost(f"the worker or its machine was lost: {str(error).strip()[-300:]}")

    def stop(self, actor: Any) -> None:
        self._ray.kill(actor)


class _Actor:
    """What runs on the cluster; the model stays loaded in its process."""

    def complete(self, chunk: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(complete_chunk(Chunk(*chunk)))
