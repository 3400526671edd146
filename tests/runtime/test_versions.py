"""What is known of versions stays in use until what is new is known; streams that cannot go on are ended."""

import asyncio

import pytest

from gateway.errors import ModelNotLoaded, UnknownModel
from gateway.runtime.in_use import VersionsInUse
from gateway.runtime.models import Catalogue
from gateway.runtime.repository import Repository
from gateway.runtime.warmth import Warmth
from gateway.triton.client import TritonClient
from gateway.triton.types import BackendError, IndexEntry, ModelMetadata
from tests.runtime_support import admitted, gateway_on_stand_in, make_profile, until
from tests.stand_in import Model, StandIn


def metadata(version: str) -> ModelMetadata:
    return ModelMetadata("m", version, (version,), "", 8, (), ())


def entry(version: str, state: str) -> IndexEntry:
    return IndexEntry("m", version, state)


@pytest.fixture
def catalogue() -> Catalogue:
    catalogue = Catalogue()
    catalogue.look([entry("1", "ready")])
    catalogue.serve(metadata("1"))
    return catalogue


def test_the_old_version_is_known_until_the_new_one_is(catalogue: Catalogue) -> None:
    """Between the switch and the answer to what the new version takes, no job may find the model gone."""
    catalogue.look([entry("1", "ready"), entry("2", "loading")])
    assert catalogue.outdated() == set()
    catalogue.look([entry("1", "unloading"), entry("2", "ready")])
    assert catalogue.outdated() == {"m"}
    assert catalogue.current("m", "1").version == "1"
    catalogue.take_in("m", [metadata("2")])
    assert catalogue.outdated() == set()
    assert catalogue.current("m", "1").version == "2", "its frames go on, on the new one"
    with pytest.raises(UnknownModel):
        catalogue.served("m", "1")


@pytest.mark.parametrize("states", [["unloading"], ["unavailable"], []])
def test_a_model_of_which_nothing_is_ready_is_not_served(catalogue: Catalogue, states: list[str]) -> None:
    catalogue.look([entry("1", state) for state in states])
    assert catalogue.outdated() == set()
    with pytest.raises(ModelNotLoaded):
        catalogue.current("m", "1")


def test_a_damaged_new_version_changes_nothing(catalogue: Catalogue) -> None:
    catalogue.look([entry("1", "ready"), entry("2", "unavailable")])
    assert catalogue.outdated() == set()
    assert catalogue.served("m").version == "1"


def test_a_version_beside_the_old_one_is_taken_in(catalogue: Catalogue) -> None:
    """Under ``version_policy: all`` both are served; frames that name none go to the newest."""
    catalogue.look([entry("1", "ready"), entry("2", "ready")])
    assert catalogue.outdated() == {"m"}
    catalogue.take_in("m", [metadata("1"), metadata("2")])
    assert catalogue.versions("m") == ("1", "2")
    assert catalogue.current("m", "1").version == "1"
    assert catalogue.served("m").version == "2"


@pytest.mark.parametrize(
    ("code", "message", "gone", "unreachable"),
    [
        ("UNAVAILABLE", "Request for unknown model: 'm' version 1 is not at ready state", True, False),
        ("NOT_FOUND", "Request for unknown model: 'm' version 7 is not found", True, False),
        ("NOT_FOUND", "Request for unknown model: 'm' is not found", False, False),
        ("NOT_FOUND", "Request for unknown model: 'm' has no available versions", False, False),
        ("UNAVAILABLE", "failed to connect to all addresses", False, True),
        ("UNAVAILABLE", "Socket closed", False, True),
        ("INTERNAL", "onnxruntime: version 3 is not found", False, False),
    ],
)
def test_what_triton_says_of_a_version_that_has_gone(code: str, message: str, gone: bool, unreachable: bool) -> None:
    """The status alone does not tell a version that has gone from a Triton that has."""
    error = BackendError(message, code)
    assert (error.version_gone, error.unreachable) == (gone, unreachable)


def test_what_others_do_is_taken_in_unless_we_are_at_it() -> None:
    async def main() -> None:
        async with StandIn(Model("echo")) as triton:
            client, catalogue, told = TritonClient(triton.url, max_message_bytes=1 << 20), Catalogue(), []
            repository = Repository(client, catalogue)
            in_use = VersionsInUse(client, repository, catalogue, Warmth())
            in_use.on_change = told.append
            await in_use.take_in("echo")
            triton.models["echo"].versions = ("2",)
            await repository.look()
            await in_use.refresh(lambda model: True)
            assert (catalogue.served("echo").version, told) == ("1", ["echo"])
            await in_use.refresh(lambda model: False)
            assert (catalogue.served("echo").version, told) == ("2", ["echo", "echo"])
            await in_use.refresh(lambda model: False)
            assert told == ["echo", "echo"], "nothing has changed"
            triton.models["echo"].loaded = False
            with pytest.raises(BackendError, match="lists no version"):
                await in_use.take_in("echo")
            await client.close()

    asyncio.run(main())


def test_a_stream_that_named_a_version_ends_whoever_took_it_away() -> None:
    async def main() -> None:
        async with gateway_on_stand_in(make_profile(), Model("echo")) as (gateway, triton):
            named, free = await admitted(gateway, version="1"), await admitted(gateway)
            triton.models["echo"].versions = ("2",)
            await until(lambda: named.state == "closed")
            assert (named.close_reason, free.state) == ("version_gone", "active")
            assert gateway.triton_ready
            assert gateway.totals.streams["version_gone"] == 1

    asyncio.run(main())
