"""State pool moves and KV slot bookkeeping."""

from __future__ import annotations

import torch
from sglang_worker.reference_platform import cache_locs, state_pool

TABLE = torch.arange(40).view(4, 10) + 100  # request r, position p -> slot 100 + 10 r + p


def test_marked_states_are_copied_to_their_track_slots() -> None:
    conv, ssm = torch.arange(6.0).view(6, 1), torch.arange(6.0).view(6, 1) * 10
    state_pool.track_mamba_states_if_needed(
        conv,
        ssm,
        torch.tensor([0, 1, -1]),
        torch.tensor([True, False, True]),
        torch.tensor([4, 5, 3]),
        3,
    )
    assert conv.view(-1).tolist() == [0, 1, 2, 3, 0, 5]
    assert ssm.view(-1).tolist() == [0, 10, 20, 30, 0, 50]


def test_all_layers_are_tracked_alike() -> None:
    conv, ssm = torch.arange(8.0).view(2, 4, 1), torch.arange(8.0).view(2, 4, 1)
    state_pool.track_mamba_states_all_layers(
        conv, ssm, torch.tensor([1]), torch.tensor([True]), torch.tensor([3]), 1
    )
    assert conv.view(2, 4).tolist() == [[0, 1, 2, 1], [4, 5, 6, 5]]


def test_the_accepted_steps_state_is_committed_and_invalid_steps_are_not() -> None:
    target = torch.zeros(1, 5)
    source = torch.arange(6.0).view(1, 3, 2) + 1
    state_pool.scatter_accepted_states(
        target, source, torch.tensor([4, 0, 2]), torch.tensor([1, -1, 0])
    )
    assert target.tolist() == [[0, 0, 5, 0, 2]]


def test_windows_are_committed_for_both_index_sets() -> None:
    target, source = torch.zeros(1, 4), torch.arange(4.0).view(1, 2, 2) + 1
    state_pool.scatter_accepted_windows(
        [(target, source)],
        torch.tensor([0, 1]),
        torch.tensor([0, 1]),
        torch.tensor([2, 3]),
        torch.tensor([-1, 0]),
    )
    assert target.tolist() == [[1, 4, 0, 3]]


def test_the_step_to_track_is_the_one_that_reaches_the_boundary() -> None:
    # Four draft tokens per request. The first accepts 3 tokens from length 7: position 8 is its
    # first accepted token. The second crosses nothing.
    commit, track = state_pool.commit_and_track_steps(
        torch.tensor([[0, 2, 3], [4, 5, -1]]),
        torch.tensor([3, 2]),
        torch.tensor([7, 3]),
        draft_token_num=4,
        mamba_track_interval=8,
    )
    assert commit.tolist() == [3, 1]
    assert track is not None
    assert track.tolist() == [0, -1]


def test_kv_rows_move_even_when_sources_and_targets_overlap() -> None:
    layer = torch.arange(12, dtype=torch.int32).view(6, 2).clone()
    state_pool.copy_kv_rows(
        torch.tensor([layer.data_ptr()]),
        torch.tensor([8]),
        torch.tensor([0, 1, 9]),
        torch.tensor([1, 2, 9]),
        num_locs=2,
        num_locs_upper=4,
        kv_copy_config=None,
    )
    assert layer[:3].tolist() == [[2, 3], [4, 5], [4, 5]]


def test_slots_of_extended_positions_are_concatenated() -> None:
    locs = cache_locs.extend_cache_locs(
        torch.tensor([2, 0]), TABLE, torch.tensor([1, 3]), torch.tensor([4, 5]), 2, 0, "cpu"
    )
    assert locs.tolist() == [121, 122, 123, 103, 104]


def test_new_slots_are_written_into_the_table() -> None:
    table = torch.zeros(3, 6, dtype=torch.int32)
    cache_locs.assign_req_to_token_pool(
        torch.tensor([2, 0]),
        table,
        torch.tensor([1, 0]),
        torch.tensor([3, 1]),
        torch.tensor([7, 8, 9]),
        2,
    )
    assert table.tolist() == [[9, 0, 0, 0, 0, 0], [0] * 6, [0, 7, 8, 0, 0, 0]]


def test_draft_slots_follow_the_requests_tokens() -> None:
    out, positions = torch.zeros(8, dtype=torch.long), torch.zeros(4, dtype=torch.long)
    cache_locs.assign_draft_cache_locs(
        torch.tensor([1, 3]), TABLE, torch.tensor([2, 5]), out, 2, 2, positions=positions
    )
    assert out.tolist() == [112, 113, 114, 115, 135, 136, 137, 138]
    assert positions.tolist() == [2, 2, 5, 5]


def test_the_bonus_token_is_the_last_accepted_one() -> None:
    bonus = torch.zeros(2, dtype=torch.int32)
    cache_locs.fill_bonus_tokens(
        torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([3, 1]), bonus, 3, 2
    )
    assert bonus.tolist() == [7, 8]


def test_accepted_and_leading_slots_are_packed() -> None:
    accepted, front = torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.long)
    slots = torch.tensor([10, 11, 12, 20, 21, 22])
    cache_locs.fill_accept_out_cache_loc(torch.tensor([[0, 2], [3, -1]]), slots, accepted, 4)
    cache_locs.fill_front_out_cache_loc(torch.tensor([2, 1]), slots, front)
    assert accepted.tolist() == [10, 12, 20, 0]
    assert front.tolist() == [10, 11, 20, 0]
