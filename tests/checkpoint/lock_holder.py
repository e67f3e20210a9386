"""Holds the lock of a directory until it gets SIGUSR1: python lock_holder.py MODEL_DIR [forks]

With "forks", a process that it forked goes on sleeping after it, and has its number in a file.
"""

import os
import signal
import sys
import time

from estimator.checkpoint.trainer_lock import trainer_lock

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with trainer_lock(sys.argv[1], 0):
        if sys.argv[2:]:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            print("forked", child)
        print("holds", flush=True)
        signal.sigwait([signal.SIGUSR1])
