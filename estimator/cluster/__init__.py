"""Communication between the tasks of a cluster: servers, health, collectives, a key-value store."""
