"""`CrossShardOptimizer`: reduces, clips and accumulates gradients around any optimizer."""
