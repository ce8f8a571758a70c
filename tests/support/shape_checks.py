"""Shape checks at run time for most calls, at a tenth of the price of all.

jaxtyping's import hook puts a decorator on every function of triptych, and a checked call costs
about 0.1 ms. Here a test checks the first calls of each function and then one of every few, which
depends on the test alone and not on what ran before it. The checker of a function is made when it
is called first.
"""

import functools
import inspect

import jaxtyping

FIRST, EVERY = 2, 100

_test = [0]


def begin_test():
    """Count calls from here."""
    _test[0] += 1


def install():
    """Let jaxtyping's decorator check some calls; before anything of triptych is imported."""
    jaxtyping.jaxtyped = functools.partial(_sampled, jaxtyping.jaxtyped)


def _sampled(jaxtyped, fn=None, *, typechecker):
    if fn is None:
        return functools.partial(_sampled, jaxtyped, typechecker=typechecker)
    if not inspect.isfunction(fn):  # a class, whose __init__ is checked if it is a dataclass
        return jaxtyped(fn, typechecker=typechecker)
    checked, calls, test = None, 0, 0

    @functools.wraps(fn)
    def function(*args, **kwargs):
        nonlocal checked, calls, test
        if test != _test[0]:
            test, calls = _test[0], 0
        calls += 1
        if calls > FIRST and calls % EVERY:
            return fn(*args, **kwargs)
        if checked is None:
            checked = jaxtyped(fn, typechecker=typechecker)
        return checked(*args, **kwargs)

    # a frame of jaxtyping's, for those who look for the line of a program
    function.__code__ = function.__code__.replace(co_filename=jaxtyping.__file__)
    return function
