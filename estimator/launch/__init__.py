"""Runs a cluster on this machine: `python -m estimator.launch --workers=2 -- program.py --flags`.

It imports no TensorFlow, and keeps the processes that do from each other's lines and ports.
"""
