"""Runs a cluster on this machine: `estimator-launch --workers=2 -- program.py --flags`.

The launcher is a separate package because it does not import TensorFlow. It gives each task a port,
and keeps the lines that the tasks print apart.
"""
