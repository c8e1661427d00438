"""One exposition from several processes."""

from __future__ import annotations

import pytest
from sglang_worker.system.metrics_merge import labelled, merge

from tests.support.exposition import Scrape

MAIN = """\
# HELP up Is it up.
# TYPE up gauge
up 1
# TYPE took histogram
took_bucket{le="1"} 2
took_count 2
"""
GATEWAY = """\
# TYPE took histogram
took_bucket{le="1"} 5
took_count 5
# HELP served Answers.
# TYPE served counter
served{model="a } b"} 7
"""


def test_each_family_is_there_once_with_the_samples_of_all() -> None:
    found = Scrape(merge(MAIN, [GATEWAY, GATEWAY]))
    assert not found.strays
    assert set(found.heads.values()) == {1}
    assert [sample.labels.get("gateway") for sample in found.families["served"].samples] == [
        "0",
        "1",
    ]
    took = found.families["took"].samples
    assert [(one.name, one.labels.get("gateway"), one.value) for one in took] == [
        ("took_bucket", None, 2),
        ("took_count", None, 2),
        *(("took_bucket", "0", 5), ("took_count", "0", 5)),
        *(("took_bucket", "1", 5), ("took_count", "1", 5)),
    ]


def test_a_gateway_that_does_not_answer_is_left_out_and_the_others_keep_their_number() -> None:
    text = merge(MAIN, [None, GATEWAY])
    assert 'served{gateway="1",model="a } b"} 7' in text
    assert 'gateway="0"' not in text


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("up 1\n", 'up{gateway="3"} 1\n'),
        ("up{} 1\n", 'up{gateway="3"} 1\n'),
        ('up{a="{ x"} 1\n', 'up{gateway="3",a="{ x"} 1\n'),
    ],
)
def test_a_sample_gets_one_more_label(sample: str, expected: str) -> None:
    assert labelled(sample, 3) == expected
