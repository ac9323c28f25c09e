"""`auto`: the default method, which searches for the best model that can be had and says what federating brought."""
