"""A ridge regression on contexts, features and own rewards, and its special case, constant arms."""
