"""Documents, their readers, and how they are dealt out to clients."""
