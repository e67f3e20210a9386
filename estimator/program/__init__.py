"""Programs: graphs that train, evaluate, predict and export. Nothing here runs a session."""
