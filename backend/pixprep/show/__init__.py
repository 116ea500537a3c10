"""Shows a pipeline to humans: text, previews, pictures and HTML."""
