"""The times at which schedules fire: asked of Prefect itself, so that its rules for changes of the clock hold."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tasks.config import Config
from tasks.deployment import Schedule
from tasks.host.finding import Finding

_SHOWN = 5
_YEAR = timedelta(days=366)


def schedule_findings(config: Config, now: datetime) -> Iterator[Finding]:
    """Yields for each schedule of a config its next times, and where within a year a change of the clock moves one."""
    schedules = {f"schedules.{name}": (name, schedule) for name, schedule in config.deploy.schedules.items()}
    if config.deploy.retraining is not None:
        schedules["retraining"] = "retraining", config.deploy.retraining
    for place, (name, schedule) in schedules.items():
        field = f"deploy.{place}.cron"
        found = Finding(name=f"schedule {config.name}-{name}", status="ok", found="")
        try:
            times, moved = next_times(schedule, now, _SHOWN), _moved(schedule, now)
        except ValueError as error:  # Prefect's own word for a line that is none, or whose day never comes
            said = f"{schedule.cron!r} never fires: {str(error).splitlines()[-1].strip()}"
            yield found.model_copy(update={"status": "problem", "found": said, "fix": f"correct {field}"})
            continue
        said = ", ".join(f"{time:%a %Y-%m-%d %H:%M %z}" for time in times)
        said += f" ({schedule.timezone}{'' if schedule.active else ', switched off'})"
        if moved is not None:
            said += f"; {moved:%Y-%m-%d %H:%M} does not exist there, because the clock is put forward"
            fix = f"take an hour that every day has in {field}"
            found = found.model_copy(update={"status": "warning", "fix": fix})
        yield found.model_copy(update={"found": said})


def next_times(schedule: Schedule, start: datetime, number: int) -> list[datetime]:
    """Returns the next times from `start` on, in the schedule's time zone."""
    return [time.astimezone(ZoneInfo(schedule.timezone)) for time in _times(schedule, schedule.timezone, start, number)]


def _moved(schedule: Schedule, now: datetime) -> datetime | None:
    """Returns the first time within a year that the cron line names and the time zone does not have."""
    zone = ZoneInfo(schedule.timezone)
    begin = now.astimezone(zone).replace(tzinfo=None)
    walls = _times(schedule, "UTC", begin.replace(tzinfo=UTC), 1000, begin.replace(tzinfo=UTC) + _YEAR)
    for wall in (time.replace(tzinfo=None) for time in walls):
        instant = wall.replace(tzinfo=zone).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) != wall:
            return wall
    return None


def _times(
    schedule: Schedule, timezone: str, start: datetime, number: int, end: datetime | None = None
) -> list[datetime]:
    from prefect.server.schemas.schedules import CronSchedule

    cron = CronSchedule(cron=schedule.cron, timezone=timezone)
    return [
        datetime.fromtimestamp(time.timestamp(), UTC)
        for time in asyncio.run(cron.get_dates(n=number, start=start, end=end))
    ]
