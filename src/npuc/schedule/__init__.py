"""Scheduling: what runs when and where, and where in memory its data lies.

`schedule(network, target, options)` is the way in; the `Schedule` that it returns is all that a code generator needs.
"""

from npuc.schedule.artifact import Schedule
from npuc.schedule.scheduler import Position, ScheduleOptions, schedule

__all__ = ["Position", "Schedule", "ScheduleOptions", "schedule"]
