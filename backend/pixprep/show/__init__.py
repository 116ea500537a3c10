"""Shows pipelines to humans as text, previews, pictures and HTML."""
