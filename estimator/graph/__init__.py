"""Building graphs: nothing in this room runs a session or touches a disk."""
