"""Engines: how units are spread over processes. Each reports what happens as it happens.

An engine is a generator of `Started` and `Ended`, one of each for every unit. Its consumer writes
to the store, so the store has one writer. Closing the generator stops all that is still running.

    inline   in this process, one unit after the other
    local    worker processes on this machine, one torch thread each
    ray      workers on a Ray cluster

A unit that raises, dies or takes too long has ended with an error; the others go on.
"""
