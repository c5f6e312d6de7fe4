"""What the commands that run a script of the user's under watch have in common
(``headrace stalls``, ``headrace memory record``): a bootstrap for every Python of it, the
process and its signals, a folder to talk in, a progress bar."""
