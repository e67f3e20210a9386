"""Event files: one writer per directory."""
