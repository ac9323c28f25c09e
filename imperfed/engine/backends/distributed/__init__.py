"""Several ranks: processes of torch.distributed, each of which holds the rows and the memory of its own sites."""
