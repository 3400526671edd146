"""The HTTP face: FastAPI routes, requests and answers, problem documents, limits."""
