"""The local steps of all sites as one captured CUDA graph."""
