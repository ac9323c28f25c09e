"""The user's own files: a declaration says what each column means, and readers turn files into sites."""
