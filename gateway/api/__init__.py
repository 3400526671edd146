"""The HTTP face: FastAPI routes, schemas, problem documents, limits."""
