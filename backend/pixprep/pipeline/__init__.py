"""Pipeline of a user's: its file, its ops, its walk and its checks."""
