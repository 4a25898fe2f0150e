"""Flower wants the components inside the app; they live in the installed package."""

from fedpriv.deploy.flower import client_app, server_app

__all__ = ["client_app", "server_app"]
