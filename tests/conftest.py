"""What all tests share."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and their children inherit that: the tests of
# signals need the ordinary behaviour.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
