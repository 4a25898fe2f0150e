"""What an encoder is trained for: tags, links, masked words."""
