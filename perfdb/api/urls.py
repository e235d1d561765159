"""Addresses of API v1, all below /api/v1/."""

from django.urls import path
from drf_spectacular.views import SpectacularAPIView

from perfdb.api import views

app_name = "api"
urlpatterns = [
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("projects", views.ProjectsView.as_view(), name="projects"),
    path("projects/<slug:slug>", views.ProjectView.as_view(), name="project"),
    path("projects/<slug:slug>/uploads", views.UploadView.as_view(), name="uploads"),
    path("projects/<slug:slug>/series", views.SeriesListView.as_view(), name="series-list"),
    path("projects/<slug:slug>/compare", views.CompareView.as_view(), name="compare"),
    path("projects/<slug:slug>/gate", views.GateView.as_view(), name="gate"),
    path("projects/<slug:slug>/alerts", views.AlertsView.as_view(), name="alerts"),
    path("projects/<slug:slug>/jobs", views.JobsView.as_view(), name="jobs"),
    path("series/<int:pk>", views.SeriesView.as_view(), name="series"),
    path("alerts/<int:pk>", views.AlertView.as_view(), name="alert"),
    path("alerts/<int:pk>/transitions", views.TransitionView.as_view(), name="transitions"),
    path("bisections/<int:pk>", views.BisectionView.as_view(), name="bisection"),
    path("runs/<uuid:uuid>", views.RunView.as_view(), name="run"),
]
