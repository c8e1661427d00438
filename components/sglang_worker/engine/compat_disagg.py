"""SGLang's side of prefill/decode separation, by probing.

Read in SGLang 0.5.21 to 0.5.23: ``srt/disaggregation/utils.py`` (the host name that stands for a
transfer that need not happen), ``srt/disaggregation/common/conn.py`` (the bootstrap server, which
a thread of the worker's process runs and which only logs when it cannot listen),
``srt/managers/tokenizer_manager.py`` (where it is kept) and ``srt/utils/network.py``.
"""

from __future__ import annotations

import inspect
from typing import Any

# Asks the bootstrap server whether every rank of the prefill engine has registered.
READY_QUERY = "/route?" + "&".join(
    f"{name}=-1"
    for name in ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")
)


def fake_bootstrap_host() -> str:
    """The host name with which either side pretends the transfer: for probes and warm-up."""
    from sglang.srt.disaggregation.utils import FAKE_BOOTSTRAP_HOST

    return str(FAKE_BOOTSTRAP_HOST)


def local_address() -> str:
    """This machine's address as SGLang's ranks advertise it: ``SGLANG_HOST_IP``, ``HOST_IP``, or
    the first that the network interfaces offer. Raises ValueError when there is none."""
    from sglang.srt.utils.network import get_local_ip_auto

    return str(get_local_ip_auto())


def resolve_host(host_port: str) -> str:
    """The address behind ``host:port`` as ``--dist-init-addr`` takes it, without brackets.

    Raises ValueError when it cannot be parsed or resolved.
    """
    from sglang.srt.utils.network import NetworkAddress

    return str(NetworkAddress.parse(host_port).resolved().host)


def bootstrap_thread_lives(tokenizer_manager: Any) -> bool:
    """Whether the bootstrap server's thread still runs; it ends when it could not listen."""
    server = getattr(tokenizer_manager, "bootstrap_server", None)
    thread = getattr(server, "thread", None)
    return thread is not None and bool(thread.is_alive())


def handover_logprobs() -> int:
    """How many alternatives of the first token fit into the handover.

    With more the prefill scheduler raises, which would end the engine.
    """
    from sglang.srt.disaggregation.utils import MetadataBuffers

    parameter = inspect.signature(MetadataBuffers).parameters["max_top_logprobs_num"]
    return int(parameter.default)


def follows_room(server_args: Any) -> bool:
    """Whether the room decides the data-parallel rank of a prompt, SGLang's default."""
    return str(server_args.load_balance_method) == "follow_bootstrap_room"
