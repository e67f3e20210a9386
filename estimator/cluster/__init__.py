"""What the tasks of a cluster tell each other: servers, health, collectives, a key-value store."""
