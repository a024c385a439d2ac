"""The models that learners fit, one folder per family, and the judge that chooses among them."""
