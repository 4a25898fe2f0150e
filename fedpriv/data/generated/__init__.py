"""Documents that are drawn here, so that nothing has to be downloaded."""
