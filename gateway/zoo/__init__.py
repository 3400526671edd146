"""Builds or fetches the weights of the models in ``model_repository/``; they are never committed."""
