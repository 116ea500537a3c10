"""What a pipeline means: its words, pictures of a photo in it, and what is doubtful about it."""
