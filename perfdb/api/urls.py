"""Addresses of API v1, all below /api/v1/."""

from django.urls import path

from perfdb.api import administration, hooks, lists, views
from perfdb.api.document import DocumentView

app_name = "api"
PROJECT = "projects/<slug:slug>"
urlpatterns = [
    path("schema", DocumentView.as_view(), name="schema"),
    path("projects", views.ProjectsView.as_view(), name="projects"),
    path(PROJECT, views.ProjectView.as_view(), name="project"),
    path(f"{PROJECT}/uploads", views.UploadView.as_view(), name="uploads"),
    path(f"{PROJECT}/series", views.SeriesListView.as_view(), name="series-list"),
    path(f"{PROJECT}/compare", views.CompareView.as_view(), name="compare"),
    path(f"{PROJECT}/gate", views.GateView.as_view(), name="gate"),
    path(f"{PROJECT}/alerts", views.AlertsView.as_view(), name="alerts"),
    path(f"{PROJECT}/jobs", views.JobsView.as_view(), name="jobs"),
    path(f"{PROJECT}/commits", lists.CommitsView.as_view(), name="commits"),
    path(f"{PROJECT}/commits/<slug:sha>", lists.CommitView.as_view(), name="commit"),
    path(f"{PROJECT}/benchmarks", lists.BenchmarksView.as_view(), name="benchmarks"),
    path(f"{PROJECT}/cases", lists.CasesView.as_view(), name="cases"),
    path(f"{PROJECT}/runs", lists.RunsView.as_view(), name="runs"),
    path(f"{PROJECT}/bisections", lists.BisectionsView.as_view(), name="bisections"),
    path(f"{PROJECT}/workers", lists.WorkersView.as_view(), name="workers"),
    path(f"{PROJECT}/environments", lists.EnvironmentsView.as_view(), name="environments"),
    path(f"{PROJECT}/traces", lists.TracesView.as_view(), name="traces"),
    path(f"{PROJECT}/tokens", administration.TokensView.as_view(), name="tokens"),
    path(f"{PROJECT}/tokens/<int:pk>", administration.TokenView.as_view(), name="token"),
    path(f"{PROJECT}/policies", administration.PoliciesView.as_view(), name="policies"),
    path(f"{PROJECT}/policies/backtest", administration.BacktestView.as_view(), name="backtest"),
    path(f"{PROJECT}/subscriptions", administration.SubscriptionsView.as_view(), name="subscriptions"),
    path(f"{PROJECT}/subscriptions/<int:pk>", administration.SubscriptionView.as_view(), name="subscription"),
    path(f"{PROJECT}/hook", administration.HookSecretView.as_view(), name="hook-secret"),
    path("hooks/<slug:slug>/<slug:forge>", hooks.HookView.as_view(), name="hook"),
    path("series/<int:pk>", views.SeriesView.as_view(), name="series"),
    path("alerts/<int:pk>", views.AlertView.as_view(), name="alert"),
    path("alerts/<int:pk>/transitions", views.TransitionView.as_view(), name="transitions"),
    path("bisections/<int:pk>", views.BisectionView.as_view(), name="bisection"),
    path("runs/<uuid:uuid>", views.RunView.as_view(), name="run"),
    path("<path:rest>", views.NothingView.as_view()),
]
