"""Sources of lazy rows: images and Parquet files, with a cache on disk of what was decoded."""
