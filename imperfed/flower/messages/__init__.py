"""What sites and coordinator say to each other, and how it travels."""
