"""How fast `estimator` is, beside the same training written by hand and beside Keras.

`python -m benchmarks` runs everything, prints one table of ratios with their targets and
writes every number to a JSON file; `--help` lists the options.

How it measures:

* Each benchmark of each workload has a process of its own, so that nothing is inherited.
* Inside, all contenders are warm and take turns: a round measures each of them once, and the
  order rotates from round to round. A ratio is taken within a round, where both sides saw
  the same machine; what is reported is the median of these ratios, with their quartiles.
  The first round only warms up.
* A contender of several processes (workers, ps) is started once and takes its turns too: its
  workers stand still, each at a read of its stdin, while others run.
* What happens once per process (time to the first step, peak memory) is measured in fresh
  processes that alternate in the same way.
"""
