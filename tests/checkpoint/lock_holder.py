"""Holds the lock of a directory until it gets SIGUSR1: python lock_holder.py MODEL_DIR"""

import signal
import sys

from estimator.checkpoint.trainer_lock import trainer_lock

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    with trainer_lock(sys.argv[1], 0):
        print("holds", flush=True)
        signal.sigwait([signal.SIGUSR1])
