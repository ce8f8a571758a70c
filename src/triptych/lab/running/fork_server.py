"""The first thing that the fork server of the local engine imports, and nothing else should.

The server spends its first seconds on importing torch. Ctrl-C in a terminal reaches it then, too,
and by default Python answers with a traceback from the middle of that import. With this it ends at
once and in silence; the run that waits for it says what there is to say. Later it ignores Ctrl-C.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # blocked by whoever started it
