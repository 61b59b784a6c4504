"""Schedules: the next times, across changes of the clock, as Prefect itself fires them."""

from datetime import UTC, datetime

import pytest

from flows.schedules import next_times, schedule_findings
from tasks.config import build_config
from tasks.deployment import Schedule

SPRING = datetime(2026, 3, 27, 12, tzinfo=UTC)  # the clock of Berlin is put forward on the 29th
AUTUMN = datetime(2026, 10, 23, 12, tzinfo=UTC)  # and back on 25 October


def shown(cron: str, start: datetime, timezone: str = "Europe/Berlin") -> list[str]:
    schedule = Schedule(cron=cron, timezone=timezone)
    return [f"{time:%m-%d %H:%M %z}" for time in next_times(schedule, start, 5)]


def test_nine_in_the_morning_is_nine_before_and_after_a_change():
    assert shown("0 9 * * *", SPRING) == [
        "03-28 09:00 +0100",
        "03-29 09:00 +0200",
        "03-30 09:00 +0200",
        "03-31 09:00 +0200",
        "04-01 09:00 +0200",
    ]
    assert shown("0 9 * * *", AUTUMN)[:3] == ["10-24 09:00 +0200", "10-25 09:00 +0100", "10-26 09:00 +0100"]


def test_repeated_hour_fires_once():
    assert shown("30 2 * * *", AUTUMN)[:3] == ["10-24 02:30 +0200", "10-25 02:30 +0200", "10-26 02:30 +0100"]


def test_day_of_month_and_weekday_mean_either():
    assert shown("0 0 13 * 5", datetime(2026, 3, 1, tzinfo=UTC), "UTC") == [
        *("03-06 00:00 +0000", "03-13 00:00 +0000", "03-20 00:00 +0000", "03-27 00:00 +0000", "04-03 00:00 +0000"),
    ]


@pytest.mark.parametrize(
    ("cron", "timezone", "status"),
    [("0 3 * * 1", "Europe/Berlin", "ok"), ("30 2 * * *", "UTC", "ok"), ("30 2 * * *", "Europe/Berlin", "warning")],
)
def test_hour_that_a_day_lacks_is_found_a_year_ahead(cron, timezone, status):
    schedule = {"cron": cron, "timezone": timezone}
    config = build_config({"name": "digits", "deploy": {"schedules": {"weekly": schedule}}})
    [finding] = schedule_findings(config, AUTUMN)
    assert (finding.name, finding.status) == ("schedule digits-weekly", status)
    assert finding.found.count(":") >= 5
    assert "switched off" in finding.found
    assert ("2027-03-28 02:30 does not exist there" in finding.found) is (status == "warning")


@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 25 * * *"])
def test_line_that_never_fires_is_a_problem(cron):
    config = build_config({"name": "digits", "deploy": {"schedules": {"never": {"cron": cron, "timezone": "UTC"}}}})
    [finding] = schedule_findings(config, AUTUMN)
    assert (finding.status, finding.fix) == ("problem", "correct deploy.schedules.never.cron")
    assert finding.found.startswith(f"'{cron}' never fires: ")
