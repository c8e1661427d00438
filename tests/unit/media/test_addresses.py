"""Only the open internet is public, however an address is written or wrapped."""

from __future__ import annotations

import ipaddress

import pytest
from sglang_worker.media.addresses import is_public, parse

INTERNAL = (
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fec0::1",
    "fd00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a01:203::1",
    "2001:db8::1",
)
PUBLIC = ("8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808")


@pytest.mark.parametrize("text", INTERNAL)
def test_an_internal_address_is_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_of_the_internet_is_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


def test_a_literal_is_read_in_brackets_and_with_a_zone_and_a_name_is_none() -> None:
    assert str(parse("[::1]")) == "::1"
    assert str(parse("fe80::1%eth0")) == "fe80::1"
    assert parse("example.org") is None
