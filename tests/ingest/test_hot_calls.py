"""The tests of the calls that ingest processes answer themselves, against ingest processes.

Not among them: those that look into the server's own objects, which are in another process here, and those that read
counters at once, which come a little later.
"""

from tests.api.test_binary_results import (  # noqa: F401
    test_a_frames_call_is_answered_in_binary,
    test_a_large_answer_has_a_length_in_binary_also_for_http_1_0,
    test_a_long_poll_is_answered_in_binary_too,
    test_the_sdk_gets_the_same_either_way,
)
from tests.api.test_frames import (  # noqa: F401
    test_a_client_that_goes_away_cancels_its_frames,
    test_a_client_that_goes_away_too_late_wastes_nothing_but_the_answer,
    test_a_closed_stream_takes_nothing,
    test_a_finished_stream_says_so,
    test_a_frame_comes_back_bit_exact,
    test_a_frame_that_expires_alone_is_a_504,
    test_a_frame_that_fails_alone_is_a_502_with_tritons_words,
    test_a_full_arena_says_when_to_come_back,
    test_a_poll_ends_in_time_when_nothing_comes,
    test_a_poll_ends_when_the_stream_does,
    test_a_wrong_size_is_that_frames_affair_alone,
    test_any_content_type_is_taken,
    test_concurrent_streams_get_their_own_answers,
    test_frames_of_a_chunked_body,
    test_frames_that_expire_together_are_results,
    test_large_frames_and_small_ones_do_not_mix,
    test_outputs_are_strict_json,
    test_several_frames_back_to_back,
    test_too_many_frames_in_one_body,
    test_without_waiting_results_are_polled,
)
from tests.api.test_ws import (  # noqa: F401
    test_a_label_comes_back_with_the_frames_of_its_message,
    test_a_message_of_several_frames_is_answered_frame_by_frame,
    test_a_result_is_that_of_a_call_and_names_its_message,
    test_a_stream_that_is_closed_ends_its_sockets_when_all_is_answered,
    test_a_stream_that_is_finished_ends_its_sockets,
    test_results_come_in_the_order_in_which_frames_end,
    test_text_that_is_no_label_is_refused,
    test_the_frames_of_a_client_that_goes_are_cancelled,
    test_what_is_refused_is_a_problem_and_the_socket_goes_on,
)
