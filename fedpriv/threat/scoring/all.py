"""All scorers: importing this module registers them."""
