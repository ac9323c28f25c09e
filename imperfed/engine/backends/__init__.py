"""How the sites' work is carried out: in this process, in worker processes, or as one CUDA graph."""
