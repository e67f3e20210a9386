"""Opening sessions and making calls with hooks around them."""
