"""How places are shared among accounts, and when a download is too slow."""

from __future__ import annotations

import ipaddress

import pytest
from sglang_worker.media.addresses import account_of
from sglang_worker.media.names import domain_of
from sglang_worker.media.places import Pace, Places


def all_it_can(places: Places, account: str) -> int:
    """Take until there is no room. Returns how many the account holds."""
    while places.has_room(account):
        places.take(account)
    return places.held(account)


def test_one_account_gets_half_and_each_that_follows_a_smaller_share() -> None:
    places = Places(64)
    assert [all_it_can(places, f"slow{number}") for number in range(4)] == [32, 11, 7, 5]
    assert places.free == 9
    assert places.has_room("other")


def test_the_last_place_is_for_an_account_that_has_none() -> None:
    places = Places(64)
    for number in range(63):
        places.take(f"slow{number}")
    assert not places.has_room("slow0")
    assert places.has_room("other")
    places.take("other")
    assert not places.has_room("one more")


def test_a_place_given_back_is_free_for_others() -> None:
    places = Places(1)
    places.take("a")
    assert not places.has_room("b")
    places.give_back("a")
    assert (places.held("a"), places.free) == (0, 1)
    assert places.has_room("b")


def test_bytes_that_arrive_in_time_give_a_new_window() -> None:
    pace = Pace(rate_bytes_per_s=100, window_s=10.0, now_s=50.0)
    assert pace.deadline_s == 60.0
    pace.arrived(999, now_s=52.0)
    assert pace.deadline_s == 60.0
    pace.arrived(1, now_s=53.0)
    assert pace.deadline_s == 63.0


def test_a_burst_earns_no_time_beyond_its_window() -> None:
    pace = Pace(rate_bytes_per_s=100, window_s=10.0, now_s=0.0)
    pace.arrived(1_000_000, now_s=1.0)
    pace.arrived(999, now_s=9.0)
    assert pace.deadline_s == 11.0


@pytest.mark.parametrize(
    ("address", "account"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("64:ff9b::c000:201", "192.0.2.1"),
        ("2002:c000:201::5", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
    ],
)
def test_an_address_is_counted_for_whoever_has_it(address: str, account: str) -> None:
    assert account_of(ipaddress.ip_address(address)) == account


@pytest.mark.parametrize("host", ["example.org", "a.example.org", "a.b.example.org"])
def test_names_are_counted_for_their_domain(host: str) -> None:
    assert domain_of(host) == "example.org"
