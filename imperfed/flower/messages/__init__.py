"""The messages between the sites and the coordinator, and how they travel."""
