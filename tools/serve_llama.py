"""A real llama.cpp server on loopback, by the package xllamacpp, in whose environment this runs.

    python tools/serve_llama.py MODEL.gguf PORT [SLOTS]

It serves until its standard input is closed.
"""

import sys

import xllamacpp


def main(file: str, port: str, slots: str = "4") -> None:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = file
    parameters.port, parameters.n_parallel = int(port), int(slots)
    parameters.n_ctx = 512 * int(slots)
    parameters.cpuparams.n_threads = 1
    parameters.cpuparams_batch.n_threads = 1
    parameters.n_threads_http = int(slots) + 4
    parameters.verbosity = 0
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
