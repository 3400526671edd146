"""Questions to a profile and to a log: which cameras fit (``framegate plan``), and were the plans right (``accuracy``).

`plan_file` reads the cameras, `planning` asks the gateway's own admission about them, `shares` says what they use,
`plan_show` and `charts` print it. `decisions` reads a decision log, `accuracy` compares, `accuracy_show` prints.
"""
