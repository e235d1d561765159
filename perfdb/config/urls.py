"""Root URLs: health, login; pages and API bring their own."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import URLPattern, URLResolver, include, path

from perfdb.config.health import healthz

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("perfdb.web.urls")),
    path("api/v1/", include("perfdb.api.urls")),
    path("healthz", healthz, name="healthz"),
    path("login/", LoginView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
