import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from gateway.core.admission import counter_offers
from gateway.core.engine import Engine
from gateway.core.events import RegisterStream
from gateway.core.plan_state import AdmissionState
from gateway.core.types import StreamSpec
from gateway.runtime.offers import Offers
from tests.runtime_support import make_profile, make_spec

ANSWER_LATE = "import time; time.sleep(60)"
DIE = "pass"
TALK = "import sys; sys.stdout.write('this is no pickle' * 10); sys.stdout.flush(); sys.stdin.read()"


def refused() -> tuple[AdmissionState, StreamSpec]:
    engine = Engine(make_profile(execution_ms=5))
    engine.handle(RegisterStream("a", make_spec(20, 60, version="1")), 0)
    candidate = make_spec(4, 9, version="1")
    assert not engine.check(candidate, 0).admitted
    return engine.admission_state(0), candidate


def run(offers: Offers, test: Callable[[Offers], Awaitable[None]]) -> None:
    async def main() -> None:
        try:
            await test(offers)
        finally:
            offers.close()

    asyncio.run(main())


def test_the_other_process_finds_what_this_one_would() -> None:
    async def test(offers: Offers) -> None:
        offers.start()
        for _ in range(3):
            found = await offers.search(*refused())
            assert found == counter_offers(*refused())
            assert found

    run(Offers(limit_s=30), test)


def test_a_search_that_takes_too_long_is_ended_and_the_next_one_works() -> None:
    async def test(offers: Offers) -> None:
        began = time.monotonic()
        assert await offers.search(*refused()) == ()
        assert 0.2 <= time.monotonic() - began < 2
        offers._command = Offers()._command
        offers._limit_s = 30
        assert await offers.search(*refused())

    run(Offers(limit_s=0.2, command=(sys.executable, "-c", ANSWER_LATE)), test)


def test_a_refusal_does_not_queue_behind_another() -> None:
    async def test(offers: Offers) -> None:
        first = asyncio.create_task(offers.search(*refused()))
        await asyncio.sleep(0)
        began = time.monotonic()
        assert await offers.search(*refused()) == ()
        assert time.monotonic() - began < 0.2
        await first

    run(Offers(limit_s=0.5, command=(sys.executable, "-c", ANSWER_LATE)), test)


def test_a_process_that_dies_or_talks_nonsense_means_no_offers() -> None:
    async def test(offers: Offers) -> None:
        for _ in range(2):
            assert await offers.search(*refused()) == ()

    for code in (DIE, TALK):
        run(Offers(limit_s=30, command=(sys.executable, "-c", code)), test)


def test_ctrl_c_in_a_terminal_is_left_to_the_gateway() -> None:
    """It goes to the whole process group; this process ends by end of file, without a word."""
    process = subprocess.Popen(
        Offers()._command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for _ in range(2):
        pickle.dump(refused(), process.stdin)
        process.stdin.flush()
        answers.append(pickle.load(process.stdout))
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    _, said = process.communicate(timeout=30)
    assert answers == [counter_offers(*refused())] * 2
    assert (process.returncode, said) == (0, b"")


def test_close_ends_the_process() -> None:
    offers = Offers()
    offers.start()
    while offers._process is None:
        time.sleep(0.005)
    process = offers._process
    offers.close()
    assert process.returncode is not None
