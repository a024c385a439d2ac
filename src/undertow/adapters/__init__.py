"""undertow's policies inside other packages: river in `undertow.adapters.river`, coba in `undertow.adapters.coba`."""
