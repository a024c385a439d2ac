"""Models that learn round by round, and policies that decide by them."""
