"""Its place puts this folder on the path: tests in any folder below can import what several of them share."""
