"""A person's mark on a run: invalid runs are kept, counted out, and can be taken back."""

from __future__ import annotations

from django.db import transaction

from perfdb.models import Run, RunStatus


@transaction.atomic
def mark(run: Run, *, reason: str) -> set[int]:
    """Mark invalid with a reason, or take the mark back with an empty one. Gives the series to analyse again."""
    run = Run.objects.select_for_update().get(pk=run.pk)
    run.invalid_reason = reason
    run.save(update_fields=["invalid_reason"])
    run.measurements.update(usable=run.counts and run.status == RunStatus.OK)
    return set(run.measurements.values_list("series_id", flat=True))
