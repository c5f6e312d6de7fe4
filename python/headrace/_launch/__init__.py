"""Shared by the commands that watch a user's script (``headrace stalls``, ``headrace memory
record``): a bootstrap for every Python process of the script, its process and signals, a folder
for communication, and a progress bar."""
