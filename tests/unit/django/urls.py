"""The URLs of the tests: the console under a path."""

from __future__ import annotations

from django.http import HttpResponse
from django.urls import include, path

urlpatterns = [
    path("login/", lambda _request: HttpResponse("Sign in")),
    path("ops/redrive/", include("redrive.django.urls")),
]
