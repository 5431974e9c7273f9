"""Views: what a log means, as pure folds over its events. Each can be thrown away and made anew.

A view keeps rows (JSON values by key) and is fed the events of one log in order. What it says
depends on the log alone, so the same rows come out however often and in how many parts it was
read. Checkpoints store the rows that changed; who reads and writes them is the store's affair.
"""
