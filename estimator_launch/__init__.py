"""Runs a cluster on this machine: `estimator-launch --workers=2 -- program.py --flags`.

Beside the library, not in it: it imports no TensorFlow, and keeps the processes that do from mixing
their lines and sharing their ports.
"""
