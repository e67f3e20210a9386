"""Running evaluation and prediction programs, which stay warm from call to call."""
