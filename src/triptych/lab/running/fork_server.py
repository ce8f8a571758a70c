"""The first module that the fork server of the local engine imports.

The server spends its first seconds on importing torch. Ctrl-C in a terminal reaches it then, too,
and by default Python prints a traceback from the middle of that import. With this the server exits
at once and silently, and the run that waits for it prints the message. Later it ignores Ctrl-C.
In any other process, as one that lists all modules, importing it changes nothing.
"""

import signal
import sys

if any("multiprocessing.forkserver" in word for word in sys.orig_argv):
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The process that started the server blocked the signal.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
