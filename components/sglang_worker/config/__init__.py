"""Flags, environment and files -> one frozen WorkerConfig.

In the order in which the entry point uses it: `environment.prepare` (variables that torch reads
when it loads), `command.handle_early` (help, version, check), `parse.parse_worker_config`,
`environment.apply`, `server_args.build_server_args`, `dump.dump_config`. All of them raise
ConfigError with one sentence; `command.error_line` is how it is printed.
"""
