"""The first module that the fork server of the local engine imports. Nothing else imports it.

The server spends its first seconds on importing torch. Ctrl-C in a terminal reaches it then, too,
and by default Python prints a traceback from the middle of that import. With this the server exits
at once and silently, and the run that waits for it prints the message. Later it ignores Ctrl-C.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(
    signal.SIG_UNBLOCK, {signal.SIGINT}
)  # blocked by the process that started it
