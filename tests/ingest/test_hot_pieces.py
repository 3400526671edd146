"""Bodies and messages that the network cuts anywhere, against ingest processes; see `test_hot_calls`."""

import pytest

from tests.api import test_body_pieces
from tests.api.served import SMALL, Served
from tests.api.test_body_pieces import (  # noqa: F401
    test_a_body_that_is_refused_unread_does_not_hide_the_next_call,
    test_a_body_without_a_length_may_have_a_trailer,
    test_a_client_that_asks_first_is_told_to_go_on,
    test_a_client_that_goes_away_behind_a_pipelined_call_cancels_its_frames,
    test_an_answer_is_one_packet_with_what_uvicorn_adds,
    test_wherever_the_network_cuts_every_frame_is_whole,
)
from tests.api.test_ws_pieces import (  # noqa: F401
    test_a_stream_of_results_and_refusals_in_one_packet,
    test_labels_pings_fragments_and_messages_keep_their_order_wherever_the_network_cuts,
    test_what_comes_behind_a_close_is_not_taken,
)


@pytest.fixture(scope="module")
def shared():
    times = {SMALL: {1: 10.0, 8: 24.0}, **test_body_pieces.TIMES}
    with Served(times=times, arena={"bytes": 64 << 20}, server={"ingest_workers": 2}) as gateway:
        yield gateway
