"""What was found: changes on series, the alerts that bundle them, evidence, messages."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from perfdb.models.result import Series
from perfdb.models.source import Branch, Commit, Project


class AlertKind(models.TextChoices):
    REGRESSION = "regression", "regression"
    IMPROVEMENT = "improvement", "improvement"
    CHANGE = "change", "change of unknown direction"
    BROKEN = "broken", "broken"
    MISSING = "missing", "missing data"


class AlertState(models.TextChoices):
    NEW = "new", "new"
    CONFIRMED = "confirmed", "confirmed"
    INVESTIGATING = "investigating", "investigating"
    ACKNOWLEDGED = "acknowledged", "acknowledged"
    FIXED = "fixed", "fixed"
    RECOVERED = "recovered", "recovered"
    RECORDED = "recorded", "recorded"
    WONTFIX = "wontfix", "won't fix"
    INVALID = "invalid", "invalid"
    DUPLICATE = "duplicate", "duplicate"
    BACKED_OUT = "backed_out", "backed out"

    @classmethod
    def open_states(cls) -> list[AlertState]:
        return [cls.NEW, cls.CONFIRMED, cls.INVESTIGATING, cls.ACKNOWLEDGED]


class Cause(models.TextChoices):
    CODE = "code", "code"
    INFRA = "infra", "infrastructure"
    WORKLOAD = "workload", "workload"
    METHOD = "method", "benchmark method"
    UNKNOWN = "unknown", "unknown"


class Alert(models.Model):
    """The changes that one commit range caused, as one incident.

    The first bad commit lies after `good` and not after `bad`. `culprit` is set only by a finished bisection or
    by a range of one commit whose two ends were measured.
    """

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="alerts")
    branch = models.ForeignKey(Branch, on_delete=models.CASCADE, related_name="alerts")
    kind = models.CharField(max_length=12, choices=AlertKind.choices)
    state = models.CharField(max_length=14, choices=AlertState.choices, default=AlertState.NEW)
    title = models.CharField(max_length=500)
    good = models.ForeignKey(Commit, null=True, on_delete=models.SET_NULL, related_name="+")
    bad = models.ForeignKey(Commit, null=True, on_delete=models.SET_NULL, related_name="+")
    good_position = models.IntegerField(null=True)
    bad_position = models.IntegerField(null=True)
    culprit = models.ForeignKey(Commit, null=True, blank=True, on_delete=models.SET_NULL, related_name="+")
    culprit_probability = models.FloatField(null=True, blank=True)
    conclusion = models.TextField(blank=True, default="")
    cause = models.CharField(max_length=10, choices=Cause.choices, default=Cause.UNKNOWN)
    cause_posterior = models.JSONField(default=dict, blank=True)
    blocking = models.BooleanField(default=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    links = models.JSONField(default=list, blank=True)
    duplicate_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(good_position__isnull=True)
                | Q(bad_position__isnull=True)
                | Q(good_position__lt=F("bad_position")),
                name="alert_range_ordered",
            ),
            models.CheckConstraint(
                condition=Q(culprit_probability__isnull=True)
                | Q(culprit_probability__gte=0, culprit_probability__lte=1),
                name="alert_probability",
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def is_open(self) -> bool:
        return self.state in AlertState.open_states()


class Change(models.Model):
    """A step on a series. Its first commit lies at a position in (`good_position`, `bad_position`].

    `active` is False once a later analysis, with more data, no longer sees it; the row stays.
    """

    series = models.ForeignKey(Series, on_delete=models.CASCADE, related_name="changes")
    alert = models.ForeignKey(Alert, null=True, blank=True, on_delete=models.SET_NULL, related_name="changes")
    kind = models.CharField(max_length=12)
    good_position = models.IntegerField()
    bad_position = models.IntegerField()
    end_position = models.IntegerField(null=True, help_text="Last position of an episode.")
    ratio = models.FloatField(null=True)
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    confidence = models.FloatField(null=True)
    direction = models.CharField(max_length=12, help_text="regressed, improved or changed")
    verdict = models.JSONField(default=dict, blank=True)
    active = models.BooleanField(default=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        ordering: ClassVar = ["bad_position"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["series", "bad_position", "kind"], name="change_unique_position"),
            models.CheckConstraint(
                condition=Q(good_position__lt=F("bad_position")), name="change_range_ordered"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.direction} at {self.bad_position} of {self.series_id}"


class AlertEvent(models.Model):
    """One line of an alert's history: who did what, when and why. A transition or a comment; never edited."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField(db_default=Now())
    who = models.CharField(max_length=200)
    from_state = models.CharField(max_length=14, blank=True, default="")
    to_state = models.CharField(max_length=14, blank=True, default="")
    text = models.TextField(blank=True, default="")

    class Meta:
        ordering: ClassVar = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.who}: {self.text[:60]}"


class Evidence(models.Model):
    """One line for or against a cause: a sentence, its likelihood under each cause, a link to its numbers."""

    alert = models.ForeignKey(Alert, on_delete=models.CASCADE, related_name="evidence")
    name = models.CharField(max_length=60)
    sentence = models.TextField()
    likelihood = models.JSONField(default=dict)
    link = models.CharField(max_length=500, blank=True, default="")
    experiment = models.BooleanField(default=False)

    class Meta:
        ordering: ClassVar = ["id"]
        verbose_name_plural = "evidence"

    def __str__(self) -> str:
        return self.sentence[:80]


class Subscription(models.Model):
    """Who hears of what. Empty filters match all. Exactly one of `email` and `webhook` is set."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="subscriptions")
    email = models.EmailField(blank=True, default="")
    webhook = models.URLField(max_length=500, blank=True, default="")
    webhook_style = models.CharField(
        max_length=10, default="json", choices=[("json", "JSON"), ("slack", "Slack")]
    )
    benchmark_pattern = models.CharField(max_length=300, blank=True, default="")
    metric_pattern = models.CharField(max_length=200, blank=True, default="")
    only_blocking = models.BooleanField(default=False)
    digest = models.BooleanField(default=False, help_text="Once a day instead of at once.")
    unsubscribe_token = models.CharField(max_length=64, unique=True)
    active = models.BooleanField(default=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=(Q(email="") & ~Q(webhook="")) | (~Q(email="") & Q(webhook="")),
                name="subscription_one_channel",
            ),
        ]

    def __str__(self) -> str:
        return self.email or self.webhook


class MessageState(models.TextChoices):
    PENDING = "pending", "pending"
    SENDING = "sending", "sending"
    SENT = "sent", "sent"
    FAILED = "failed", "failed"


class Message(models.Model):
    """One message to one recipient about one change of an alert's state.

    The unique key is claimed before sending, so two workers racing on one alert send one mail.
    """

    alert = models.ForeignKey(Alert, null=True, on_delete=models.CASCADE, related_name="messages")
    subscription = models.ForeignKey(
        Subscription, null=True, blank=True, on_delete=models.SET_NULL, related_name="messages"
    )
    recipient = models.CharField(max_length=500)
    occasion = models.CharField(max_length=60, help_text="What happened: new, culprit, recovered, ...")
    state = models.CharField(max_length=8, choices=MessageState.choices, default=MessageState.PENDING)
    subject = models.CharField(max_length=500, blank=True, default="")
    text = models.TextField(blank=True, default="")
    html = models.TextField(blank=True, default="")
    attempts = models.PositiveIntegerField(default=0)
    error = models.TextField(blank=True, default="")
    next_attempt_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(db_default=Now())
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["-created_at", "-id"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["alert", "recipient", "occasion"], name="message_once"),
        ]

    def __str__(self) -> str:
        return f"{self.recipient}: {self.subject}"
