"""``--gateway-workers N``: N processes relay for one engine (docs/gateway-workers.md).

One Python process relays about 15,000 chunks a second, however fast its engine is. Here the main
process keeps the engine and serves nobody; each gateway has a runtime instance and an SGLang
tokenizer worker of its own, and runs the same serving path as a worker that owns its engine.

    main      engine, SGLang's router, runner reports, system listener, supervision   `host`
    gateway   runtime, tokenizer worker, handlers, egress, its own shutdown           `child`

The two talk over one socketpair (`wire`): the plan and an engine's death one way, the gateway's
state every half second the other. `supervision` decides, without a clock or a process of its own.
"""
