"""Where measurements come from: environments, pools, workers."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now


class EnvironmentClass(models.Model):
    """The fields that separate series: GPU and CPU model, MIG, power limit, clock policy."""

    digest = models.CharField(max_length=64, unique=True)
    fields = models.JSONField(default=dict)
    label = models.CharField(max_length=200, blank=True, default="")

    def __str__(self) -> str:
        return self.label or self.digest[:10]


class Environment(models.Model):
    """Where a launch ran. `boundary` holds what marks a boundary inside a series (driver, CUDA, torch, image)."""

    digest = models.CharField(max_length=64, unique=True)
    klass = models.ForeignKey(EnvironmentClass, on_delete=models.PROTECT, related_name="environments")
    boundary = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"{self.klass} {self.digest[:8]}"


class Pool(models.Model):
    """Interchangeable workers."""

    name = models.SlugField(max_length=80, unique=True)
    description = models.TextField(blank=True, default="")

    def __str__(self) -> str:
        return self.name


class Worker(models.Model):
    """One host and GPU (or CPU set) that serves a queue."""

    name = models.CharField(max_length=200, unique=True)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="workers")
    host = models.CharField(max_length=200, blank=True, default="")
    device = models.CharField(max_length=200, blank=True, default="")
    environment = models.ForeignKey(
        Environment, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    seen_at = models.DateTimeField(db_default=Now())
    enabled = models.BooleanField(default=True)

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name
