"""The coordinator of real sites."""
