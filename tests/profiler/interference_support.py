"""A Triton that takes configurations with a load, and a perf_analyzer that writes what it is told to measure."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2, service_pb2

from profiler.interference_figures import Figures
from profiler.interference_plan import Point, StudyPlan
from profiler.interference_report import FailedPoint, MeasuredPoint, StudyReport
from tests.stand_in import Model, StandIn

#: Its requests take 10 ms for each client, 5 ms more beside another model. It keeps a log of its runs in the directory
#: that it lies in. What the model is called says what goes wrong.
_PERF_ANALYZER = """#!{python}
import json, os, pathlib, sys, time
if "--version" in sys.argv:
    sys.exit(0)
arguments = dict(zip(sys.argv[1::2], sys.argv[2::2]))
model, clients, export = arguments["-m"], int(arguments["--concurrency-range"]), arguments.get("--profile-export-file")
log = pathlib.Path(__file__).with_name("runs.jsonl")
runs = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
beside = [run["model"] for run in runs if not run["timed"] and pathlib.Path("/proc", str(run["pid"])).exists()]
with log.open("a") as file:
    line = dict(pid=os.getpid(), model=model, timed=export is not None, beside=beside, arguments=arguments)
    file.write(json.dumps(line) + "\\n")
if model == "fails":
    sys.exit("error: it fails")
if export is None:
    time.sleep(0 if model == "ends" else 60)
    sys.exit(0)
if runs and not runs[-1]["timed"]:
    time.sleep(0.3)  # for the other one to end, if it is to
length = clients * 10_000_000 + 5_000_000 * len(beside)
if model == "empty" and not runs:
    pathlib.Path(export).touch()
    sys.exit(0)
requests = [
    dict(timestamp=10**18 + n * length, response_timestamps=[10**18 + (n + 1) * length])
    for n in range(100)
    for _ in range(clients)
]
pathlib.Path(export).write_text(json.dumps(dict(experiments=[dict(requests=requests)])))
"""


def make_perf_analyzer(directory: Path) -> Path:
    """Write the executable into `directory` and return its path."""
    path = directory / "perf_analyzer"
    path.write_text(_PERF_ANALYZER.format(python=sys.executable))
    path.chmod(0o755)
    return path


def runs_of(perf_analyzer: Path) -> list[dict[str, Any]]:
    """Return what it logged, run by run."""
    log = perf_analyzer.with_name("runs.jsonl")
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


class StudyStandIn(StandIn):
    """Loads models with a configuration of the caller's, as Triton does, and executes while an untimed run lasts.

    Attributes:
        perf_analyzer: Whose untimed runs those are.
        served: After each load or unload: model -> number of instances, 0 for the repository's own configuration.
    """

    def __init__(self, *models: Model, config: Mapping[str, Any] | None = None) -> None:
        super().__init__(*models)
        self.config = {"instance_group": [{"count": 1}], **(config or {})}
        self.served: list[dict[str, int]] = []
        self.perf_analyzer: Path | None = None
        self._given: dict[str, dict[str, Any]] = {}
        self._executed = 0

    async def RepositoryModelLoad(self, request, context):
        reply = await super().RepositoryModelLoad(request, context)
        if "config" in request.parameters:
            self._given[request.model_name] = json.loads(request.parameters["config"].string_param)
        self._note_served()
        return reply

    async def RepositoryModelUnload(self, request, context):
        reply = await super().RepositoryModelUnload(request, context)
        self._given.pop(request.model_name, None)
        self._note_served()
        return reply

    async def ModelConfig(self, request, context):
        model = await self._loaded(request.name, context)
        own = self.config | {"name": model.name, "max_batch_size": model.max_batch_size}
        config = json_format.ParseDict(self._given.get(model.name, own), model_config_pb2.ModelConfig())
        return service_pb2.ModelConfigResponse(config=config)

    async def ModelStatistics(self, request, context):
        await self._loaded(request.name, context)
        if self.perf_analyzer is not None and not all(run["timed"] for run in runs_of(self.perf_analyzer)[-1:]):
            self._executed += 10
        return service_pb2.ModelStatisticsResponse(
            model_stats=[service_pb2.ModelStatistics(name=request.name, inference_count=self._executed)]
        )

    def _note_served(self) -> None:
        def instances(name: str) -> int:
            return self._given[name]["instance_group"][0]["count"] if name in self._given else 0

        self.served.append({name: instances(name) for name, model in self.models.items() if model.loaded})


def make_figures(p50_ms: float = 10.0, frames_per_s: float = 100.0, **fields: Any) -> Figures:
    """Return plausible figures."""
    values = {"count": 200, "p99_ms": 2 * p50_ms, "max_ms": 3 * p50_ms, "stable": True} | fields
    return Figures(p50_ms=p50_ms, frames_per_s=frames_per_s, **values)


def make_report(plan: StudyPlan, without: tuple[Point, ...] = ()) -> StudyReport:
    """Return a report of all of `plan` but some points.

    The first model takes 10 ms and the second 20 ms for a frame, n at once n times as long; one beside the other 1.5
    times.
    """
    points = []
    for point in plan.points():
        if point not in without:
            load = point.load
            p50_ms = (
                10.0 * (1 + plan.models.index(load.model)) * load.instances * load.batch * (1.5 if point.beside else 1)
            )
            points.append(MeasuredPoint(point, make_figures(p50_ms, load.instances * load.batch * 1_000 / p50_ms)))
    return StudyReport(
        plan=plan,
        shapes=dict.fromkeys(plan.models, (64, 96, 3)),
        points=tuple(points),
        failures=tuple(FailedPoint(point, "no reason") for point in without),
        device="a test",
        triton_version="2.51.0",
        created="2026-01-01T00:00:00+00:00",
        command="framegate profile interference",
    )
