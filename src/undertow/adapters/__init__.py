"""undertow's policies in other packages: `undertow.adapters.river`, `.coba`, `.optuna` and `.litellm`."""
