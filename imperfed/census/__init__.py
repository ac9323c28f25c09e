"""What a federation's files hold, site by site, before anything is trained."""
