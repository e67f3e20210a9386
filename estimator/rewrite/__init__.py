"""Rewriting and ordering graphs: copies of a part of one, and what runs before what."""
