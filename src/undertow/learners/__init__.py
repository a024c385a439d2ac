"""Models that are learned round by round, and how a learner decides by them."""
