"""What proves a store; public, so that a third-party backend can be held to the same.

`contract` is the suite that defines a backend, `lockstep` a state machine that tells all of them
the same. `crash` kills real processes, `powerloss` replays losses of power, `corruption` damages
logs; `agents` are the seeded writers that they run, `ledger` knows what was acknowledged,
`survival` says what must hold afterwards, `mutations` are the damages and their oracle, `peers` is
a second process that takes orders. `vfs` stands below SQLite, so that databases go through all of
this as folders do (`databases`, `sqlite_faults`), and evidence through its own (`testimony`).
`faults` and `quotas` let the system fail. `strategies` draws values for property tests.
`histories` tells what agents do to a log, `providers` what the APIs of models refuse.
"""

__all__: list[str] = []
