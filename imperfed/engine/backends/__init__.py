"""Ways to carry out the sites' work: in this process, in worker processes, or as one CUDA graph."""
