"""Ports that no socket takes are refused before anything starts, by the flag's name."""

from __future__ import annotations

import re

import pytest
from sglang_worker.errors import ConfigError

from tests.unit.config.support import parse


@pytest.mark.parametrize("flag", ["--nccl-port", "--port", "--disaggregation-bootstrap-port"])
@pytest.mark.parametrize("port", ["70000", "-5", "0"])
def test_a_number_that_is_no_port_is_refused(flag: str, port: str) -> None:
    with pytest.raises(ConfigError, match=f"^{flag} {port} is refused; accepted: 1 to 65535"):
        parse(f"{flag}={port}")


@pytest.mark.parametrize("address", ["host:70000", "host:0", "host", ":5000", "host:x", "host:"])
def test_an_address_without_a_usable_port_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"--dist-init-addr {address} is refused")):
        parse("--dist-init-addr", address)


@pytest.mark.parametrize("address", ["10.0.0.1:5000", "[fd00::5]:65535", "leader.svc:1"])
def test_usable_addresses_are_kept(address: str) -> None:
    assert parse("--dist-init-addr", address).engine.explicit["dist_init_addr"] == address
