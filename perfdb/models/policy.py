"""Thresholds, versioned: the newest active version whose scope is the narrowest decides."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from perfdb.models.machine import Pool
from perfdb.models.result import Benchmark
from perfdb.models.source import Project
from perfdb.stats.policy import Policy


class PolicyVersion(models.Model):
    """One version of the thresholds of a scope. `values` holds the keys that differ from the defaults."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="policies")
    benchmark = models.ForeignKey(
        Benchmark, null=True, blank=True, on_delete=models.CASCADE, related_name="policies"
    )
    metric = models.CharField(max_length=200, blank=True, default="")
    pool = models.ForeignKey(Pool, null=True, blank=True, on_delete=models.CASCADE, related_name="policies")
    version = models.PositiveIntegerField(default=1)
    values = models.JSONField(default=dict)
    active = models.BooleanField(default=True)
    author = models.CharField(max_length=200, blank=True, default="")
    why = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["-version"]
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["project", "benchmark", "metric", "pool", "version"],
                name="policy_unique_version",
                nulls_distinct=False,
            ),
        ]

    def __str__(self) -> str:
        return f"policy {self.project_id} v{self.version}"

    def policy(self) -> Policy:
        """Raises ValueError naming the key that does not fit."""
        return Policy.from_mapping(self.values)
