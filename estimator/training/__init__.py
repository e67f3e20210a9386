"""Running a train program: its loops, saves, reports, and why it ends."""
