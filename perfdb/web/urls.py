"""Addresses of the pages."""

from django.urls import path

from perfdb.web.views import alerts, people, projects, runs

app_name = "web"
urlpatterns = [
    path("", projects.home, name="home"),
    path("projects/<slug:slug>/", projects.project, name="project"),
    path("projects/<slug:slug>/commits/<str:sha>/", projects.commit, name="commit"),
    path("projects/<slug:slug>/alerts/", alerts.alerts, name="alerts"),
    path("projects/<slug:slug>/alerts/act/", alerts.act, name="alerts-act"),
    path("projects/<slug:slug>/jobs/", runs.jobs, name="jobs"),
    path("projects/<slug:slug>/subscriptions/", people.subscriptions, name="subscriptions"),
    path("series/<int:pk>/", projects.series, name="series"),
    path("runs/<uuid:uuid>/", runs.run, name="run"),
    path("runs/<uuid:uuid>/mark/", runs.mark, name="run-mark"),
    path("runs/<uuid:uuid>/again/", runs.again, name="run-again"),
    path("jobs/<uuid:uuid>/", runs.job_action, name="job-action"),
    path("alerts/<int:pk>/", alerts.alert, name="alert"),
    path("alerts/<int:pk>/bisect/", alerts.bisect, name="bisect"),
    path("bisections/<int:pk>/", alerts.bisection, name="bisection"),
    path("bisections/<int:pk>/cancel/", alerts.bisection_cancel, name="bisection-cancel"),
    path("inbox/", people.inbox, name="inbox"),
    path("inbox/<int:pk>/", people.message, name="message"),
    path("tokens/", people.tokens, name="tokens"),
    path("tokens/<int:pk>/revoke/", people.token_revoke, name="token-revoke"),
    path("workers/", people.workers, name="workers"),
    path("unsubscribe/<str:token>/", people.unsubscribe, name="unsubscribe"),
]
