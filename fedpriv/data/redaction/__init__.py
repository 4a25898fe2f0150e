"""Taking something off a page: find the words, paint over their place, check what can be read."""
