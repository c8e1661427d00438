"""Which addresses a client's URL may lead to. Pure."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# NAT64 gateways translate these to the IPv4 address in the last four bytes.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def parse(text: str) -> Address | None:
    """An address literal as a URL's host has it, or None for a name."""
    try:
        return ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None


def looks_numeric(host: str) -> bool:
    """Whether HTTP clients and sockets take the host for an address, however it is written."""
    return ":" in host or host.replace(".", "").isdigit()


def account_of(address: Address) -> str:
    """Under what downloads from an address are counted: whoever has one IPv6 address has its /64,
    and an IPv4 address is the same one when it is wrapped."""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    wrapped = address.ipv4_mapped or address.sixtofour
    if wrapped is None and address in _NAT64:
        wrapped = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if wrapped is not None:
        return str(wrapped)
    # Without the scope, which a network cannot have.
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def is_public(address: Address) -> bool:
    """Whether the address, and any IPv4 address wrapped in it, belongs to the open internet."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        tunnelled = address.sixtofour or (address.teredo and address.teredo[1])
        if tunnelled and not is_public(tunnelled):
            return False
        if address.is_site_local:
            return False
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified
    )
