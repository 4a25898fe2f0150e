"""Document models, each behind the protocol of `fedpriv.models.base`."""
