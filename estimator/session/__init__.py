"""Running programs: sessions, hooks, when to save and to write."""
