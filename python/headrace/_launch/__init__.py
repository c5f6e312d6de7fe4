"""Shared by the commands that watch a script of the user
(``headrace stalls``, ``headrace memory record``): a bootstrap for every Python of it, the
process and its signals, a folder to talk in, a progress bar."""
