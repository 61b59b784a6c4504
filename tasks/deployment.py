"""Deployment: the fields of deploy, which say how Prefect runs a config."""

import zoneinfo
from typing import Annotated, Literal

from pydantic import Field, field_validator

from tasks.section import Section


class Schedule(Section):
    """When a deployment runs by itself."""

    cron: str = Field(pattern=r"^\S+( \S+){4}$")
    """Minute, hour, day of month, month, day of week; day of month AND day of week given means either."""
    timezone: str
    """Name of a time zone, such as Europe/Berlin or UTC: without one, a cron line means another hour twice a year."""
    active: bool = False
    """Whether it runs from the start; otherwise it is switched on in the Prefect UI."""

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in zoneinfo.available_timezones():
            raise ValueError("must be the name of a time zone, such as Europe/Berlin or UTC")
        return name


class DeployConfig(Section):
    """How Prefect runs this config; `millstream deployments --write` makes prefect.yaml of it."""

    work_pool: str = "gpu-pool"
    """Work pool whose worker runs it."""
    concurrency_limit: int = Field(1, ge=1)
    """Runs of one deployment at the same time."""
    when_busy: Literal["wait", "cancel"] = "wait"
    """What becomes of a run over that limit."""
    schedules: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")], Schedule] = {}
    """Deployments besides the plain one, by the name that follows the config's: weekly makes digits-weekly."""
    retraining: Schedule | None = None
    """When the flow retraining runs, as a deployment of its own, digits-retraining; `millstream notify-data digits`
    starts it too. A run that comes while another is at work is cancelled. Default: there is none."""
